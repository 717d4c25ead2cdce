//! Canonical forms of the objects of a table. Objects with the same effect have the same form.

use std::collections::HashSet;

use super::canonical::{canonical, canonical_element};
use super::tokens::tokenize;
use super::values::ElementTypes;
use crate::nft::{Element, Rule, Set, TableObject};

/// Default maximum number of elements of a set to which rules add elements (Linux v6.12,
/// `nft_dynset_init` in `net/netfilter/nft_dynset.c`).
const DYNAMIC_SIZE: u64 = 65_535;

/// Words that start the options of an element.
const ELEMENT_OPTIONS: [&str; 7] = [
    "timeout", "expires", "counter", "limit", "quota", "last", "ct",
];

impl Rule {
    /// Returns the canonical text, including the comment.
    #[must_use]
    pub fn canonical(&self) -> String {
        let comment = self.comment.as_deref().unwrap_or_default();
        format!("{} \"{comment}\"", canonical(&self.text))
    }
}

impl Element {
    /// Returns the canonical text, including the comment.
    #[must_use]
    pub fn canonical(&self) -> String {
        self.canonical_of(&ElementTypes::default())
    }

    /// Returns the canonical text like [`Element::canonical`], for an element of a set with these
    /// types. Names of values become numbers.
    #[must_use]
    pub fn canonical_of(&self, types: &ElementTypes) -> String {
        let comment = self.comment.as_deref().unwrap_or_default();
        let key = canonical_element(&self.key, types, false);
        let value = self.value.as_deref();
        let value = value.map(|value| canonical_element(value, types, true));
        format!("{key} : {} \"{comment}\"", value.unwrap_or_default())
    }

    /// Returns the key without the options of the element, such as its timeout. A set has one
    /// element for each key.
    #[must_use]
    pub fn bare_key(&self) -> &str {
        let words = tokenize(&self.key).unwrap_or_default();
        let is_option = |text: &str| ELEMENT_OPTIONS.contains(&text);
        let mut later_words = words.iter().skip(1);
        let option = later_words.find(|word| !word.is_quoted && is_option(word.text));
        let end = option.map_or(self.key.len(), |word| word.range.start);
        self.key[..end].trim_end()
    }

    /// Returns the canonical form of the [`bare_key`](Self::bare_key).
    #[must_use]
    pub fn canonical_key(&self) -> String {
        canonical(self.bare_key())
    }
}

impl Set {
    /// Returns the elements that the other set does not have with the same text.
    pub fn elements_missing_in<'s>(&'s self, other: &'s Self) -> impl Iterator<Item = &'s Element> {
        let content = |element: &'s Element| (&element.key, &element.value, &element.comment);
        let known: HashSet<_> = other.elements.iter().map(content).collect();
        let elements = self.elements.iter();
        elements.filter(move |&element| !known.contains(&content(element)))
    }

    /// Returns the types of the elements.
    #[must_use]
    pub fn element_types(&self) -> ElementTypes {
        ElementTypes::parse(&tokenize(&self.type_line).unwrap_or_default())
    }

    /// Returns the set without its elements and comment: a canonical type, sorted flags and
    /// properties, and the size that the kernel uses.
    #[must_use]
    pub fn canonical_declaration(&self) -> Self {
        let mut flags = self.flags.clone();
        flags.sort_unstable();
        let properties = self.properties.iter();
        let mut properties: Vec<String> = properties.map(|line| canonical(line)).collect();
        properties.sort_unstable();
        let is_dynamic = flags.iter().any(|flag| flag == "dynamic");
        Self {
            type_line: canonical(&self.type_line),
            size: self.size.or(is_dynamic.then_some(DYNAMIC_SIZE)),
            flags,
            properties,
            comment: None,
            ..self.declaration()
        }
    }
}

impl TableObject {
    /// Returns the canonical text. The values of counters and the used part of quotas are omitted.
    #[must_use]
    pub fn canonical(&self) -> String {
        let is_counter = self.head.starts_with("counter ");
        let lines = self.body.iter().filter(|_| !is_counter).map(|line| {
            let limit = line
                .split_once(" used ")
                .map_or(line.as_str(), |(limit, _)| limit);
            canonical(limit)
        });
        format!(
            "{} {{ {} }}",
            self.head,
            lines.collect::<Vec<_>>().join("; ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_key_has_no_options() {
        for (key, expected) in [
            ("10.0.0.1/32 . tcp . 80", "10.0.0.1 . tcp . 80"),
            ("10.0.0.1 timeout 1h", "10.0.0.1"),
            ("10.0.0.1 counter packets 3 bytes 180", "10.0.0.1"),
            ("\"counter\" limit rate 1/second", "counter"),
        ] {
            assert_eq!(Element::set_element(key).canonical_key(), expected);
        }
    }

    #[test]
    fn canonical_declaration_has_default_size() {
        let set = Set {
            flags: vec!["timeout".to_owned(), "dynamic".to_owned()],
            comment: Some("affinity".to_owned()),
            elements: vec![Element::set_element("10.0.0.1")],
            ..Set::default()
        };
        let declaration = set.canonical_declaration();
        assert_eq!(declaration.size, Some(65_535));
        assert_eq!(declaration.flags, ["dynamic", "timeout"]);
        assert_eq!((declaration.elements.len(), declaration.comment), (0, None));
    }

    #[test]
    fn canonical_object_has_no_counted_values() {
        let object = |head: &str, line: &str| TableObject {
            head: head.to_owned(),
            body: vec![line.to_owned()],
            line: 0,
        };
        let counter = |line| object("counter web", line).canonical();
        assert_eq!(counter("packets 0 bytes 0"), counter("packets 3 bytes 180"));
        let quota = |line| object("quota day", line).canonical();
        assert_eq!(
            quota("over 25 mbytes"),
            quota("over 25 mbytes used 2 kbytes")
        );
        assert_ne!(quota("over 25 mbytes"), quota("over 26 mbytes"));
    }
}
