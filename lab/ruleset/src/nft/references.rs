//! Finds the objects of the same table that a rule or a map element refers to.

use super::tokens::tokenize;

/// Names of chains, sets and other objects in the text of a rule or in the value of a map element.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct References<'t> {
    /// Chains after `jump` and `goto`.
    pub chains: Vec<&'t str>,
    /// Sets, maps and flow tables after `@`.
    pub sets: Vec<&'t str>,
    /// Words that may name another object, such as a counter. `nft` quotes these names, but also
    /// the names of interfaces.
    pub objects: Vec<&'t str>,
}

impl<'t> References<'t> {
    /// Parses the text of a rule, or the value of a map element. A text that cannot be split into
    /// words has no references.
    #[must_use]
    pub fn parse(text: &'t str) -> Self {
        let mut references = Self::default();
        let words = tokenize(text).unwrap_or_default();
        let mut previous = "";
        for word in &words {
            if word.is_quoted || matches!(previous, "name" | "set") {
                references.objects.push(word.text);
            } else if matches!(previous, "jump" | "goto") {
                references.chains.push(word.text);
            }
            if let Some(set) = word.text.strip_prefix('@').filter(|_| !word.is_quoted) {
                references.sets.push(set);
            }
            previous = if word.is_quoted { "" } else { word.text };
        }
        references
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_of_each_kind_are_found() {
        let rule = "iifname \"eth0\" ip daddr . tcp dport vmap @web-ips flow add @fast counter name \"hits\" \
                    ct helper set ftp ct state vmap { new : jump a/b, established : goto c } jump d";
        let found = References::parse(rule);
        assert_eq!(found.chains, ["a/b", "c", "d"]);
        assert_eq!(found.sets, ["web-ips", "fast"]);
        assert_eq!(found.objects, ["eth0", "hits", "ftp"]);
        assert_eq!(References::parse("goto e").chains, ["e"]);
        assert_eq!(References::parse("\"open"), References::default());
    }
}
