//! Parses the lines of a chain: its hook, its comment and its rules.

use super::words::{Word, comment, words};
use crate::nft::{Chain, Hook, Rule};
use crate::text::Line;
use crate::text::problem::{Problem, Wrong};
use crate::tool::Format;

/// Parses one line into a chain. `family` is the family of its table.
pub(super) fn line(chain: &mut Chain, line: Line<'_>, family: &str) -> Result<(), Problem> {
    let whole = || Problem::new(Wrong::Line(Format::Nft), line.start..line.end());
    let words = split(line)?;
    match words.as_slice() {
        [keyword, said] if keyword.is("comment") && said.quoted => {
            if chain.comment.is_some() {
                return Err(twice("the chain's comment", chain.line, line));
            }
            chain.comment = Some(said.text.to_owned());
            Ok(())
        }
        [keyword, kind, hook, name, ..]
            if keyword.is("type") && hook.is("hook") && !kind.quoted && !name.quoted =>
        {
            if chain.hook.is_some() {
                return Err(twice("the chain's hook", chain.line, line));
            }
            let rest = &line.text[name.at.end..];
            let mut read = Hook {
                kind: kind.text.to_owned(),
                hook: name.text.to_owned(),
                policy: "accept".to_owned(),
                ..Hook::default()
            };
            properties(&mut read, rest, family, line)?;
            chain.hook = Some(read);
            Ok(())
        }
        words => {
            if !is_balanced(words) {
                return Err(whole());
            }
            let (text, said) = comment(line.text, words);
            chain.rules.push(Rule {
                text: text.to_owned(),
                comment: said.map(str::to_owned),
                line: line.number,
            });
            Ok(())
        }
    }
}

/// Splits a line into words.
pub(super) fn split(line: Line<'_>) -> Result<Vec<Word<'_>>, Problem> {
    words(line.text).map_err(|at| Problem::new(Wrong::Quote, line.start + at..line.end()))
}

/// Creates the error for a second occurrence of a unique item of a chain, set or table.
pub(super) fn twice(what: &str, first: u32, line: Line<'_>) -> Problem {
    let what = what.to_owned();
    Problem::new(Wrong::Twice { what, line: first }, line.start..line.end())
}

/// Whether the braces are balanced and correctly nested.
pub(super) fn is_balanced(words: &[Word<'_>]) -> bool {
    let mut depth = 0_usize;
    for word in words {
        if word.is("{") {
            depth += 1;
        } else if word.is("}") {
            let Some(less) = depth.checked_sub(1) else {
                return false;
            };
            depth = less;
        }
    }
    depth == 0
}

/// Parses the part after the hook name: ` device eth0 priority dstnat - 10; policy accept;`.
fn properties(hook: &mut Hook, rest: &str, family: &str, line: Line<'_>) -> Result<(), Problem> {
    let place = line.start..line.end();
    let whole = || Problem::new(Wrong::Line(Format::Nft), place.clone());
    let (head, rest) = rest.split_once(';').ok_or_else(whole)?;
    let (device, priority) = head.rsplit_once("priority ").ok_or_else(whole)?;
    device.trim().clone_into(&mut hook.device);
    hook.priority = number(priority.trim(), family).ok_or_else(|| {
        let value = priority.trim().to_owned();
        let wanted = "a priority";
        Problem::new(Wrong::Value { value, wanted }, place.clone())
    })?;
    for property in rest.split(';').map(str::trim) {
        match property.strip_prefix("policy ") {
            Some(policy @ ("accept" | "drop")) => policy.clone_into(&mut hook.policy),
            None if property.is_empty() => {}
            _ => return Err(whole()),
        }
    }
    Ok(())
}

/// Parses a priority: a number, a name, or a name plus or minus a number (nftables v1.0.6,
/// `std_prios` and `bridge_std_prios` in `src/rule.c`).
fn number(text: &str, family: &str) -> Option<i32> {
    let named = |name: &str| {
        let bridge = family == "bridge";
        Some(match name {
            "raw" => -300,
            "mangle" => -150,
            "dstnat" if bridge => -300,
            "dstnat" => -100,
            "filter" if bridge => -200,
            "filter" => 0,
            "security" => 50,
            "out" if bridge => 100,
            "srcnat" if bridge => 300,
            "srcnat" => 100,
            _ => return None,
        })
    };
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    match words.as_slice() {
        [name] => named(name),
        [name, "-", less] => named(name)?.checked_sub(less.parse().ok()?),
        [name, "+", more] => named(name)?.checked_add(more.parse().ok()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_have_names() {
        for (text, priority) in [
            ("dstnat - 10", Some(-110)),
            ("-110", Some(-110)),
            ("srcnat", Some(100)),
            ("filter + 5", Some(5)),
            ("dstnau", None),
            ("dstnat * 10", None),
            ("", None),
        ] {
            assert_eq!(number(text, "ip"), priority, "{text}");
        }
        assert_eq!(number("dstnat", "bridge"), Some(-300));
    }
}
