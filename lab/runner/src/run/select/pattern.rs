//! Patterns of names, with wildcards.

/// Whether a text contains a wildcard.
pub(super) fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Whether a text matches a pattern. `*` matches any number of characters, and `?` matches one.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut at_pattern, mut at_text) = (0, 0);
    // Position after the last `*`, and of the text that it does not match yet.
    let mut last_star = None;
    while at_text < text.len() {
        match pattern.get(at_pattern) {
            Some('*') => {
                at_pattern += 1;
                last_star = Some((at_pattern, at_text));
            }
            Some(&wanted) if wanted == '?' || wanted == text[at_text] => {
                at_pattern += 1;
                at_text += 1;
            }
            _ => match &mut last_star {
                None => return false,
                Some((after_star, rest)) => {
                    *rest += 1;
                    (at_pattern, at_text) = (*after_star, *rest);
                }
            },
        }
    }
    pattern[at_pattern..].iter().all(|&rest| rest == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn pattern_matches_like_a_shell() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "a=b,c=d"),
            ("*mode=ipvs*", "policy=Local,mode=ipvs"),
            ("a?c", "abc"),
            ("*a*b", "xaaybxb"),
            ("a**", "a"),
            ("", ""),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("?", ""),
            ("mode=ipvs*", "policy=Local,mode=ipvs"),
            ("a?c", "ac"),
            ("*a*b", "xaaybxbc"),
            ("", "a"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
