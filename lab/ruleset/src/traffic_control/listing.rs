//! Parses the outputs of `tc class` and `tc filter`. A comment with the command precedes the output
//! for each interface, because the output does not name the interface.

use indexmap::IndexMap;

use crate::text::{Text, lines};

/// Classes or filters by place, in printed order. A place is an interface with a hook or a parent:
/// `eth0 ingress`, `eth0 parent 1:`. It is empty for output without a comment.
pub type Listings = IndexMap<String, Vec<Item>>;

/// Class or filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Lines of the item, joined by spaces.
    pub text: String,
    /// Line number of the first line, from 1.
    pub line: u32,
}

/// Words whose next word counts or identifies.
const VOLATILE_WORDS: [&str; 4] = ["fh", "index", "ref", "bind"];

impl Item {
    /// Renders the item without its handle and counters.
    #[must_use]
    pub fn canonical(&self) -> String {
        let mut words = self.text.split(' ');
        let mut kept = Vec::new();
        while let Some(word) = words.next() {
            if VOLATILE_WORDS.contains(&word) {
                words.next();
            } else {
                kept.push(word);
            }
        }
        kept.join(" ")
    }
}

/// Parses the output of `tc class` or `tc filter` for several interfaces. Kinds of filters print
/// different texts, so each line is part of an item.
#[must_use]
pub fn parse(text: &Text) -> Listings {
    let mut listings = Listings::new();
    let mut place = String::new();
    for line in lines(text) {
        let words: Vec<&str> = line.text.split_ascii_whitespace().collect();
        if let ["#", "tc", ..] = words.as_slice() {
            let names = words.iter().skip_while(|word| **word != "dev").skip(1);
            place = names.copied().collect::<Vec<_>>().join(" ");
            continue;
        }
        let words = words.join(" ");
        let items: &mut Vec<Item> = listings.entry(place.clone()).or_default();
        match items.last_mut() {
            Some(item) if line.indented => {
                item.text.push(' ');
                item.text.push_str(&words);
            }
            _ => items.push(Item {
                text: words,
                line: line.number,
            }),
        }
    }
    listings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_filters_joins_lines_of_each_place() {
        // Output of `tc -d filter` of iproute2 6.1, as `scripts/collect-node` writes it.
        let text = "\
# tc filter show dev d0 egress
filter protocol ip pref 1 u32 chain 0 
filter protocol ip pref 1 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 terminal flowid not_in_hw 
  match 0a000001/ffffffff at 16
	action order 1: mirred (Egress Redirect to device d1) stolen
	index 1 ref 1 bind 1

# tc filter show dev d1 parent 1:
filter protocol ip pref 1 u32 chain 0 fh 800: ht divisor 1 
";
        let listings = parse(&Text::new(text));
        let lines = listings.iter().flat_map(|(place, items)| {
            items
                .iter()
                .map(move |item| format!("{place}, line {}: {}", item.line, item.canonical()))
        });
        insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r"
        d0 egress, line 2: filter protocol ip pref 1 u32 chain 0
        d0 egress, line 3: filter protocol ip pref 1 u32 chain 0 order 2048 key ht 800 bkt 0 terminal flowid not_in_hw match 0a000001/ffffffff at 16 action order 1: mirred (Egress Redirect to device d1) stolen
        d1 parent 1:, line 9: filter protocol ip pref 1 u32 chain 0 ht divisor 1
        ");
    }
}
