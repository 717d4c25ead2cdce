//! How `iptables-save` writes words and `iptables-restore` reads them: divided
//! by blanks, in double quotes where they hold any, a backslash inside quotes
//! protecting the next character. (`xtables_save_string` and
//! `add_param_to_argv` of iptables 1.8.9.)

/// Divides a line into words. None if a quote is not closed.
pub(crate) fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                let word = word.get_or_insert_with(String::new);
                loop {
                    match characters.next()? {
                        '"' => break,
                        '\\' => word.push(characters.next()?),
                        other => word.push(other),
                    }
                }
            }
            ' ' | '\t' => words.extend(word.take()),
            other => word.get_or_insert_with(String::new).push(other),
        }
    }
    words.extend(word);
    Some(words)
}

/// A word as it would be written.
pub(super) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,+=%@!#&*~|".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut quoted = String::with_capacity(word.len() + 2);
    quoted.push('"');
    for character in word.chars() {
        if matches!(character, '"' | '\\' | '\'') {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quotes_hold_words_together() {
        let line = r#"-A X  -m comment --comment "a \"b\" c\\d" -j Y"#;
        assert_eq!(
            split(line).unwrap(),
            [
                "-A",
                "X",
                "-m",
                "comment",
                "--comment",
                r#"a "b" c\d"#,
                "-j",
                "Y"
            ]
        );
        assert_eq!(split(r#"--comment """#).unwrap(), ["--comment", ""]);
    }

    #[test]
    fn an_open_quote_is_no_line() {
        assert_eq!(split(r#"--comment "a"#), None);
        assert_eq!(split(r#"--comment "a\"#), None);
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_read_back(words in proptest::collection::vec("[ -~é]{0,12}", 0..6)) {
            let line: Vec<String> = words.iter().map(|word| quote(word)).collect();
            prop_assert_eq!(split(&line.join(" ")), Some(words));
        }
    }
}
