//! Replaces the names of values by numbers in the words of a rule or element. `nft -n`, `-p`, `-T` and
//! `-S` print the same values as names or as numbers (nftables v1.0.6, `src/datatype.c`,
//! `symbolic_constant_print` and `inet_service_type_print`).

mod selector;
mod symbols;

use std::borrow::Cow;

use super::tokens::Token;
use selector::selector;
use symbols::ValueType;

/// Word with numbers instead of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word<'t> {
    /// Word without quotes.
    pub(super) text: Cow<'t, str>,
    /// Whether the word was quoted.
    pub(super) is_quoted: bool,
}

impl Word<'_> {
    /// Whether the word equals `text` and is not quoted.
    pub(super) fn is_unquoted(&self, text: &str) -> bool {
        !self.is_quoted && self.text == text
    }
}

/// Returns the number of an IP protocol from its number or its name in `/etc/protocols`.
#[must_use]
pub fn protocol_number(text: &str) -> Option<u8> {
    let number = ValueType::Protocol.number(text, false)?;
    u8::try_from(number).ok()
}

/// Types of the elements of a set, or of the keys and values of a map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ElementTypes {
    keys: Vec<ValueType>,
    values: Vec<ValueType>,
}

impl ElementTypes {
    /// Parses a declaration: `type inet_proto . inet_service : verdict` or `typeof ip protocol`.
    pub(super) fn parse(words: &[Token<'_>]) -> Self {
        let (is_typeof, words) = match words {
            [first, rest @ ..] if first.is_unquoted("typeof") => (true, rest),
            [_, rest @ ..] => (false, rest),
            [] => return Self::default(),
        };
        let mut sides = words.splitn(2, |word| word.is_unquoted(":"));
        let mut next_types = || -> Vec<ValueType> {
            let side = sides.next().unwrap_or_default();
            let parts = side.split(|word| word.is_unquoted("."));
            let types = parts.map(|part| match selector(part) {
                Some((_, value_type)) if is_typeof => value_type,
                _ if is_typeof => ValueType::Other,
                _ => part
                    .first()
                    .map_or(ValueType::Other, |word| ValueType::from_name(word.text)),
            });
            types.collect()
        };
        Self {
            keys: next_types(),
            values: next_types(),
        }
    }
}

/// Words between values of one match.
const OPERATORS: [&str; 21] = [
    "!", "!=", "==", "<", ">", "<=", ">=", "&", "|", "^", "/", "-", ",", ".", "and", "or", "xor",
    "set", "map", "vmap", "(",
];

/// Returns the words of a rule, with numbers instead of names.
pub(super) fn with_numbers<'t>(words: &[Token<'t>]) -> Vec<Word<'t>> {
    let mut reader = Reader::default();
    let mut index = 0;
    while let Some(word) = words.get(index) {
        if index > 0 && reader.add_port(&words[index - 1], word) {
            index += 1;
        } else if reader.depth > 0 && reader.has_types() {
            reader.read_element_word(word);
            index += 1;
        } else if reader.has_types()
            && !reader.is_set_to(&words[index..])
            && reader.read_match_word(word)
        {
            index += 1;
        } else if let Some((length, value_type)) = selector(&words[index..]) {
            reader.add_selector(value_type);
            for word in &words[index..index + length] {
                reader.push(word, ValueType::Other);
            }
            index += length;
            // Older versions print `reject with icmp type no-route`.
            let is_reject = word.is_unquoted("with");
            if is_reject
                && words
                    .get(index)
                    .is_some_and(|next| next.is_unquoted("type"))
            {
                index += 1;
            }
        } else {
            reader.end_match();
            reader.count_brace(word);
            // In a map without a selector: `numgen random mod 2 map { 0 : 10.0.0.1 . "http" }`.
            let is_port = reader.depth > 0 && index > 0 && words[index - 1].is_unquoted(".");
            let value_type = if is_port {
                ValueType::Service
            } else {
                ValueType::Other
            };
            reader.push(word, value_type);
            index += 1;
        }
    }
    reader.out
}

/// Returns the words of an element, with numbers instead of names. `is_value` is whether the words
/// are the value of a map.
pub(super) fn element_with_numbers<'t>(
    words: &[Token<'t>],
    types: &ElementTypes,
    is_value: bool,
) -> Vec<Word<'t>> {
    let mut reader = Reader {
        types: types.clone(),
        depth: 1,
        is_value,
        ..Reader::default()
    };
    for word in words {
        reader.read_element_word(word);
    }
    reader.out
}

/// Reader of the words of a rule or element.
#[derive(Debug, Default)]
struct Reader<'t> {
    out: Vec<Word<'t>>,
    /// Types of the values that follow.
    types: ElementTypes,
    /// Whether the selectors of the match are not complete.
    is_selecting: bool,
    /// Position in a concatenation of values.
    part: usize,
    /// Whether the last word is a value. Another value does not belong to the match.
    has_value: bool,
    /// Whether the word is the value of a map.
    is_value: bool,
    /// Number of open braces.
    depth: usize,
}

impl<'t> Reader<'t> {
    fn has_types(&self) -> bool {
        !self.types.keys.is_empty()
    }

    /// Whether a statement sets a value without names to a selector: `meta mark set ip dscp map`.
    fn is_set_to(&self, words: &[Token<'_>]) -> bool {
        let is_set = self.out.last().is_some_and(|last| last.is_unquoted("set"));
        is_set && self.types.keys == [ValueType::Other] && selector(words).is_some()
    }

    fn end_match(&mut self) {
        self.types = ElementTypes::default();
        self.is_selecting = false;
        (self.part, self.has_value, self.is_value) = (0, false, false);
    }

    /// Starts a match, or adds a selector to a concatenation.
    fn add_selector(&mut self, value_type: ValueType) {
        if !self.is_selecting {
            self.end_match();
        }
        self.types.keys.push(value_type);
        self.is_selecting = true;
    }

    /// Adds the name of a port after an address: `10.0.0.1:"http"`. Returns `false` for other words.
    fn add_port(&mut self, before: &Token<'t>, word: &Token<'t>) -> bool {
        let is_port =
            before.range.end == word.range.start && !before.is_quoted && before.text.ends_with(':');
        let Some(number) = ValueType::Service.number(word.text, word.is_quoted) else {
            return false;
        };
        match self.out.last_mut() {
            Some(last) if is_port => {
                last.text.to_mut().push_str(&number.to_string());
                true
            }
            _ => false,
        }
    }

    fn count_brace(&mut self, word: &Token<'_>) {
        if word.is_unquoted("{") {
            self.depth += 1;
        } else if word.is_unquoted("}") {
            self.depth = self.depth.saturating_sub(1);
        }
    }

    /// Reads a word after a selector. Returns `false` if the word does not belong to the match.
    fn read_match_word(&mut self, word: &Token<'t>) -> bool {
        if word.is_unquoted("{") {
            self.depth += 1;
            self.is_selecting = false;
            self.part = 0;
            self.push(word, ValueType::Other);
            return true;
        }
        if !word.is_quoted && OPERATORS.contains(&word.text) {
            if word.text == "." && self.has_value {
                self.part += 1;
            }
            // A selector can follow the dot.
            self.is_selecting &= word.text == ".";
            self.has_value = false;
            self.push(word, ValueType::Other);
            return true;
        }
        let last_is_dot = self.out.last().is_some_and(|last| last.is_unquoted("."));
        if self.has_value || (self.is_selecting && last_is_dot) {
            return false;
        }
        let value_type = self.types.keys.get(self.part).copied();
        self.push(word, value_type.unwrap_or(ValueType::Other));
        self.has_value = true;
        self.is_selecting = false;
        true
    }

    /// Reads a word of an element of a set or map.
    fn read_element_word(&mut self, word: &Token<'t>) {
        let types = if self.is_value {
            &self.types.values
        } else {
            &self.types.keys
        };
        // The types of an anonymous map are not printed. Only ports have names in quotes.
        let is_unknown_value = self.is_value && types.is_empty();
        let default = if is_unknown_value && self.part > 0 {
            ValueType::Service
        } else {
            ValueType::Other
        };
        let value_type = types.get(self.part).copied().unwrap_or(default);
        match (word.text, word.is_quoted) {
            ("{" | "}", false) => {
                self.count_brace(word);
                self.push(word, ValueType::Other);
                if self.depth == 0 {
                    self.end_match();
                }
                return;
            }
            (",", false) => (self.part, self.is_value) = (0, false),
            (":", false) => (self.part, self.is_value) = (0, true),
            (".", false) => self.part += 1,
            _ => {
                self.push(word, value_type);
                return;
            }
        }
        self.push(word, ValueType::Other);
    }

    /// Adds a word as a number, if its type has numbers.
    fn push(&mut self, word: &Token<'t>, value_type: ValueType) {
        let last = self.out.last().map(|last| &*last.text);
        let is_time = matches!(last, Some("timeout" | "gc-interval"));
        let text = if is_time && let Some(time) = canonical_time(word.text) {
            Cow::Owned(time)
        } else if !word.is_quoted && matches!(word.text, "exists" | "missing") {
            Cow::Borrowed(if word.text == "exists" { "1" } else { "0" })
        } else {
            match canonical_value(word, value_type) {
                Some(text) => Cow::Owned(text),
                None => Cow::Borrowed(word.text),
            }
        };
        let is_changed = text != word.text;
        self.out.push(Word {
            text,
            is_quoted: word.is_quoted && !is_changed,
        });
    }
}

/// Returns a value with numbers instead of names. A value can contain operators without spaces:
/// `(fin|syn)`. `None` for other words.
fn canonical_value(word: &Token<'_>, value_type: ValueType) -> Option<String> {
    if let Some(number) = value_type.number(word.text, word.is_quoted) {
        return Some(number.to_string());
    }
    let operators = ['(', ')', '|'];
    if word.is_quoted || !word.text.contains(operators) {
        return None;
    }
    let parts = word.text.split_inclusive(operators).map(|part| {
        let name = part.trim_end_matches(operators);
        let number = value_type.number(name, false);
        let number = number.map_or_else(|| name.to_owned(), |number| number.to_string());
        number + &part[name.len()..]
    });
    Some(parts.collect())
}

/// Units of times, with their milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Returns a time in the largest of the units seconds and milliseconds: `1m30s` becomes `90s`.
/// `None` for other words.
fn canonical_time(text: &str) -> Option<String> {
    let mut total: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit_end = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (_, factor) = UNITS.iter().find(|(unit, _)| *unit == &rest[..unit_end])?;
        total = total.checked_add(number.checked_mul(*factor)?)?;
        rest = &rest[unit_end..];
    }
    if text.is_empty() {
        return None;
    }
    Some(if total.is_multiple_of(1000) {
        format!("{}s", total / 1000)
    } else {
        format!("{total}ms")
    })
}

#[cfg(test)]
mod tests {
    use super::super::canonical::canonical;
    use super::*;

    #[test]
    fn canonical_names_and_numbers_are_equal() {
        for (names, numbers) in [
            (
                "ct state established,related accept",
                "ct state 0x2,0x4 accept",
            ),
            (
                "ct status dnat dnat to 10.0.0.1",
                "ct status 0x20 dnat to 10.0.0.1",
            ),
            (
                "tcp flags & (fin|syn) == syn drop",
                "tcp flags & (0x1|0x2) == 0x2 drop",
            ),
            (
                "tcp flags & (fin | syn) == syn drop",
                "tcp flags & (0x1 | 0x2) == 0x2 drop",
            ),
            (
                "meta l4proto tcp reject with tcp reset",
                "meta l4proto 6 reject with tcp reset",
            ),
            (
                "reject with icmp type no-route",
                "reject with icmp no-route",
            ),
            (
                "meta mark set ip dscp map { cs1 : 0x00000005 }",
                "meta mark set ip dscp map { 0x08 : 0x00000005 }",
            ),
            (
                "numgen random mod 2 map { 0 : 10.0.0.1 . \"http\" }",
                "numgen random mod 2 map { 0 : 10.0.0.1 . 80 }",
            ),
            ("redirect to :\"http\"", "redirect to :80"),
            ("iifgroup \"default\" accept", "iifgroup 0 accept"),
            (
                "add @a { ip saddr timeout 1h1s500ms }",
                "add @a { ip saddr timeout 3601500ms }",
            ),
        ] {
            assert_eq!(canonical(names), canonical(numbers), "{names}");
            let once = canonical(names);
            assert_eq!(canonical(&once), once, "{names}");
        }
    }

    #[test]
    fn canonical_other_words_keep_their_names() {
        for text in [
            "ip protocol tcp goto tcp",
            "ct state new jump new",
            "iifname \"http\" log prefix \"tcp\"",
            "limit rate 5/second burst 7 packets",
            "ip saddr @tcp counter name \"http\"",
        ] {
            let last = text.split(' ').next_back().unwrap_or_default();
            let canonical = canonical(text);
            let kept = canonical.split(' ').next_back().unwrap_or_default();
            assert_eq!(kept, last.trim_matches('"'), "{text}");
        }
    }

    #[test]
    fn canonical_element_needs_types_of_set() {
        let types = |line: &str| {
            let words = super::super::tokenize(line).unwrap();
            ElementTypes::parse(&words)
        };
        let render = |line: &str, text: &str| {
            let words = super::super::tokenize(text).unwrap();
            let words = element_with_numbers(&words, &types(line), false);
            let texts: Vec<&str> = words.iter().map(|word| &*word.text).collect();
            texts.join(" ")
        };
        for line in [
            "type ipv4_addr . inet_proto . inet_service",
            "typeof ip saddr . meta l4proto . th dport : verdict",
        ] {
            assert_eq!(
                render(line, "10.0.0.1 . tcp . \"http\""),
                "10.0.0.1 . 6 . 80"
            );
        }
        assert_eq!(render("type ifname", "\"tcp\""), "tcp");
        assert_eq!(
            render("type inet_proto", "tcp timeout 5m"),
            "6 timeout 300s"
        );
    }
}
