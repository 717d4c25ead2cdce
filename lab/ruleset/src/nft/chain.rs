//! Parses the lines of a chain: its hook, its comment and its rules.

use super::first_lines::FirstLines;
use super::tokens::{Token, split_comment, tokenize};
use crate::nft::{Chain, Hook, Rule};
use crate::text::Line;
use crate::text::problem::{Problem, ProblemKind};
use crate::tool::Format;

/// Parses one line into a chain. `family` is the family of its table.
pub(super) fn parse_line(
    chain: &mut Chain,
    lines: &mut FirstLines,
    line: Line<'_>,
    family: &str,
) -> Result<(), Problem> {
    let line_problem = || {
        Problem::new(
            ProblemKind::UnknownLine(Format::Nft),
            line.start..line.end(),
        )
    };
    let words = split(line)?;
    match words.as_slice() {
        [keyword, comment_text] if keyword.is_unquoted("comment") && comment_text.is_quoted => {
            lines.insert("comment", "the comment of this chain", line)?;
            chain.comment = Some(comment_text.text.to_owned());
            Ok(())
        }
        [keyword, kind, hook, name, ..]
            if keyword.is_unquoted("type")
                && hook.is_unquoted("hook")
                && !kind.is_quoted
                && !name.is_quoted =>
        {
            lines.insert("hook", "the hook of this chain", line)?;
            let properties_text = &line.text[name.range.end..];
            let mut parsed_hook = Hook {
                kind: kind.text.to_owned(),
                hook: name.text.to_owned(),
                policy: "accept".to_owned(),
                ..Hook::default()
            };
            parse_hook_properties(&mut parsed_hook, properties_text, family, line)?;
            chain.hook = Some(parsed_hook);
            Ok(())
        }
        words => {
            if !is_balanced(words) {
                return Err(line_problem());
            }
            let (text, rule_comment) = split_comment(line.text, words);
            chain.rules.push(Rule {
                text: text.to_owned(),
                comment: rule_comment.map(str::to_owned),
                line: line.number,
            });
            Ok(())
        }
    }
}

/// Splits a line into words.
pub(super) fn split(line: Line<'_>) -> Result<Vec<Token<'_>>, Problem> {
    tokenize(line.text).map_err(|position| {
        Problem::new(
            ProblemKind::UnclosedQuote,
            line.start + position..line.end(),
        )
    })
}

/// Whether the braces are balanced and correctly nested.
pub(super) fn is_balanced(words: &[Token<'_>]) -> bool {
    let mut depth = 0_usize;
    for word in words {
        if word.is_unquoted("{") {
            depth += 1;
        } else if word.is_unquoted("}") {
            let Some(outer_depth) = depth.checked_sub(1) else {
                return false;
            };
            depth = outer_depth;
        }
    }
    depth == 0
}

/// Parses the part after the hook name: ` device eth0 priority dstnat - 10; policy accept;`.
fn parse_hook_properties(
    hook: &mut Hook,
    rest: &str,
    family: &str,
    line: Line<'_>,
) -> Result<(), Problem> {
    let range = line.start..line.end();
    let line_problem = || Problem::new(ProblemKind::UnknownLine(Format::Nft), range.clone());
    let (head, rest) = rest.split_once(';').ok_or_else(line_problem)?;
    let (device, priority) = head.rsplit_once("priority ").ok_or_else(line_problem)?;
    device.trim().clone_into(&mut hook.device);
    hook.priority = parse_priority(priority.trim(), family).ok_or_else(|| {
        let value = priority.trim().to_owned();
        let expected = "a priority";
        Problem::new(ProblemKind::InvalidValue { value, expected }, range.clone())
    })?;
    for property in rest.split(';').map(str::trim) {
        match property.strip_prefix("policy ") {
            Some(policy @ ("accept" | "drop")) => policy.clone_into(&mut hook.policy),
            None if property.is_empty() => {}
            _ => return Err(line_problem()),
        }
    }
    Ok(())
}

/// Parses a priority: a number, a name, or a name plus or minus a number (nftables v1.0.6,
/// `std_prios` and `bridge_std_prios` in `src/rule.c`).
fn parse_priority(text: &str, family: &str) -> Option<i32> {
    let priority_by_name = |name: &str| {
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
        [name] => priority_by_name(name),
        [name, "-", less] => priority_by_name(name)?.checked_sub(less.parse().ok()?),
        [name, "+", more] => priority_by_name(name)?.checked_add(more.parse().ok()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_priority_accepts_names_and_offsets() {
        for (text, priority) in [
            ("dstnat - 10", Some(-110)),
            ("-110", Some(-110)),
            ("srcnat", Some(100)),
            ("filter + 5", Some(5)),
            ("dstnau", None),
            ("dstnat * 10", None),
            ("", None),
        ] {
            assert_eq!(parse_priority(text, "ip"), priority, "{text}");
        }
        assert_eq!(parse_priority("dstnat", "bridge"), Some(-300));
    }
}
