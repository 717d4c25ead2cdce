//! Separates the values of counters from rules.

use super::Rule;
use super::tokens::tokenize;

impl Rule {
    /// Returns the rule as `nft -s` lists it, and the number of packets that its first counter has
    /// counted. The number is `None` if the rule has no counter, or if its value is not listed.
    #[must_use]
    pub fn split_counter(&self) -> (Self, Option<u64>) {
        let words = tokenize(&self.text).unwrap_or_default();
        let counters = words.windows(5).filter_map(|words| {
            let [counter, packets, count, bytes, size] = words else {
                return None;
            };
            let names = [(counter, "counter"), (packets, "packets"), (bytes, "bytes")];
            if !names.iter().all(|(word, name)| word.is_unquoted(name)) {
                return None;
            }
            let count: u64 = count.text.parse().ok()?;
            Some((count, counter.range.end..size.range.end))
        });
        let counters: Vec<_> = counters.collect();
        let mut rule = self.clone();
        for (_, values) in counters.iter().rev() {
            rule.text.replace_range(values.clone(), "");
        }
        let first = counters.first();
        (rule, first.map(|(packets, _)| *packets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_counter_returns_rule_without_values() {
        for (text, expected, packets) in [
            (
                "ip saddr @some counter packets 3 bytes 180 drop",
                "ip saddr @some counter drop",
                Some(3),
            ),
            ("counter packets 0 bytes 0", "counter", Some(0)),
            (
                "counter packets 1 bytes 2 log counter packets 3 bytes 4",
                "counter log counter",
                Some(1),
            ),
            (
                "ip saddr @some counter drop",
                "ip saddr @some counter drop",
                None,
            ),
            (
                "counter name \"packets 3 bytes 4\"",
                "counter name \"packets 3 bytes 4\"",
                None,
            ),
            (
                "iifname \"counter packets 3 bytes 4\" counter packets 5 bytes 6",
                "iifname \"counter packets 3 bytes 4\" counter",
                Some(5),
            ),
            (
                "counter packets x bytes 1",
                "counter packets x bytes 1",
                None,
            ),
            ("counter packets 1", "counter packets 1", None),
            ("", "", None),
        ] {
            let rule = Rule::new(text).with_comment("counter packets 7 bytes 8");
            let split = rule.split_counter();
            assert_eq!(split.0.text, expected, "{text}");
            assert_eq!(
                (split.0.comment, split.1),
                (rule.comment, packets),
                "{text}"
            );
        }
    }
}
