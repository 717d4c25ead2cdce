//! Parses the output of `iptables-save`. Input: text. Output: all rules that can be parsed, and all
//! errors.

use std::collections::HashMap;
use std::ops::Range;

use thiserror::Error;

use super::classify::{ClassifiedWord, RuleError, WordClass, WordClassifier};
use super::rule::{self, Rule, shift_problem};
use super::{Chain, IptablesRules, TableRules, extensions};
use crate::Family;
use crate::iptables::script::Table;
use crate::text::limits::MAX_REPORTED;
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Line, Text, lines};
use crate::tool::{DumpedBackend, Format};
use svclab_diagnostic::Severity;

/// Error for a text that is not the output of `iptables-save`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {kind}")]
pub struct ParseError {
    /// Line number, from 1.
    pub line: usize,
    /// Error in the line.
    pub kind: ProblemKind,
}

impl IptablesRules {
    /// Parses the output of `iptables-save` with or without `-c`. Blank lines, comment lines (`#`)
    /// and surrounding whitespace are ignored. Problems that are only warnings are ignored, see
    /// [`IptablesRules::parse_with_problems`].
    ///
    /// # Errors
    ///
    /// Returns the first error with its line.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut problems = Vec::new();
        let dump = Self::parse_with_problems(&Text::new(text), &mut problems);
        let first = problems
            .into_iter()
            .filter(|problem| problem.severity() == Severity::Error)
            .min_by_key(|problem| problem.range.start);
        match first {
            None => Ok(dump),
            Some(Problem {
                kind: wrong,
                range: at,
            }) => Err(ParseError {
                line: text[..at.start].matches('\n').count() + 1,
                kind: wrong,
            }),
        }
    }

    /// Parses the output of `iptables-save`. Lines that cannot be parsed are skipped and added to
    /// `problems`.
    #[must_use]
    pub fn parse_with_problems(text: &Text, problems: &mut Vec<Problem>) -> Self {
        let mut reader = Parser {
            text,
            problems,
            dump: Self::default(),
            open_table: None,
            is_duplicate_table: false,
            started_tables: Vec::new(),
            chains: HashMap::new(),
            last_chain: None,
        };
        let mut last_line = None;
        for line in lines(text) {
            reader.parse_line(line);
            last_line = Some(line);
        }
        // A truncated rule can be valid but have another meaning, for example if a port lacks a
        // digit.
        if let Some(line) =
            last_line.filter(|line| reader.open_table.is_some() && line.end() == text.len())
        {
            let is_truncated = is_rule(line.text);
            if let Some(chain) = reader
                .last_chain
                .filter(|_| is_truncated)
                .map(|(_, chain)| chain)
                && let Some(table) = reader.dump.tables.last_mut()
                && let Some(rules) = table.chains.get_mut(chain).map(|chain| &mut chain.rules)
                && rules.last().is_some_and(|rule| rule.line == line.number)
            {
                rules.pop();
            }
            if is_truncated {
                reader.add_problem(ProblemKind::Truncated, line.start..line.end());
            }
        }
        reader.close_table();
        reader.dump
    }
}

/// Maximum number of chains that are searched for a similar name.
const MAX_SEARCHED_CHAINS: usize = 5000;

struct Parser<'t, 'p> {
    text: &'t Text,
    problems: &'p mut Vec<Problem>,
    dump: IptablesRules,
    /// Range of the line that starts the open table. `None` outside of a table.
    open_table: Option<Range<usize>>,
    /// Whether the open table is a duplicate, which is skipped.
    is_duplicate_table: bool,
    /// Tables so far, with the line numbers where they start.
    started_tables: Vec<(Table, u32)>,
    /// Index and line number of each chain of the open table, by name.
    chains: HashMap<&'t str, (usize, u32)>,
    /// Chain of the last rule. The next rule usually belongs to the same chain.
    last_chain: Option<(&'t str, usize)>,
}

impl<'t> Parser<'t, '_> {
    fn add_problem(&mut self, wrong: ProblemKind, range: Range<usize>) {
        self.problems.push(Problem::new(wrong, range));
    }

    fn parse_line(&mut self, line: Line<'t>) {
        let whole = line.start..line.end();
        match line.text.as_bytes()[0] {
            b'#' => {}
            b'*' => self.parse_table(line),
            _ if self.open_table.is_none() => {
                let known = line.text == "COMMIT"
                    || line.text.starts_with([':', '['])
                    || line.text.starts_with("-A ");
                let wrong = if known {
                    ProblemKind::OutsideTable
                } else {
                    ProblemKind::UnknownLine(SAVE_FORMAT)
                };
                self.add_problem(wrong, whole);
            }
            b':' | b'-' | b'[' if self.is_duplicate_table => {}
            b':' => self.parse_chain(line),
            b'-' | b'[' => self.parse_rule(line),
            _ if line.text == "COMMIT" => self.open_table = None,
            _ => self.add_problem(ProblemKind::UnknownLine(SAVE_FORMAT), whole),
        }
    }

    fn parse_table(&mut self, line: Line<'t>) {
        self.close_table();
        let whole = line.start..line.end();
        let name = line.text[1..].trim_ascii();
        let Some(table) = Table::from_name(name) else {
            self.add_problem(ProblemKind::UnknownTable(name.to_owned()), whole);
            return;
        };
        if let Some((_, first)) = self
            .started_tables
            .iter()
            .find(|(known, _)| *known == table)
        {
            let wrong = ProblemKind::DuplicateTable {
                name: name.to_owned(),
                line: *first,
            };
            self.add_problem(wrong, whole.clone());
            // Duplicate rules would have a double effect.
            self.is_duplicate_table = true;
            self.open_table = Some(whole);
            return;
        }
        self.is_duplicate_table = false;
        self.started_tables.push((table, line.number));
        self.dump.tables.push(TableRules {
            table,
            chains: Vec::new(),
        });
        self.chains.clear();
        self.last_chain = None;
        self.open_table = Some(whole);
    }

    /// Ends the open table, at the end of the text or before the next table. Reports a missing
    /// `COMMIT`.
    fn close_table(&mut self) {
        if let Some(range) = self.open_table.take() {
            let name = self.text[range.start + 1..range.end].trim_ascii();
            self.add_problem(ProblemKind::UncommittedTable(name.to_owned()), range);
        }
    }

    fn parse_chain(&mut self, line: Line<'t>) {
        let whole = line.start..line.end();
        let mut words = line.text[1..].split_ascii_whitespace();
        let (Some(name), Some(policy), counters, None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return self.add_problem(ProblemKind::InvalidChain, whole);
        };
        if counters.is_some_and(|counters| !are_counters(counters)) {
            return self.add_problem(ProblemKind::InvalidCounters, whole);
        }
        let policy = match policy {
            "-" => None,
            "ACCEPT" | "DROP" | "QUEUE" | "REJECT" => Some(policy.to_owned()),
            text => {
                let wrong = ProblemKind::InvalidValue {
                    value: text.to_owned(),
                    expected: "a policy (ACCEPT, DROP, or - for none)",
                };
                return self.add_problem(wrong, whole);
            }
        };
        if let Some((_, first)) = self.chains.get(name) {
            let wrong = ProblemKind::DuplicateChain {
                name: name.to_owned(),
                line: *first,
            };
            return self.add_problem(wrong, whole);
        }
        let Some(table) = self.dump.tables.last_mut() else {
            return;
        };
        self.chains.insert(name, (table.chains.len(), line.number));
        table.chains.push(Chain {
            name: name.to_owned(),
            policy,
            rules: Vec::new(),
            line: line.number,
        });
    }

    fn parse_rule(&mut self, line: Line<'t>) {
        let head = match rule::parse_head(line.text) {
            Ok(head) => head,
            Err(problem) => {
                self.problems.push(shift_problem(problem, line.start));
                return;
            }
        };
        let chain = match self.last_chain {
            Some((name, chain)) if name == head.chain => chain,
            _ => {
                let Some((chain, _)) = self.chains.get(head.chain) else {
                    let range = line.start + head.chain_at.start..line.start + head.chain_at.end;
                    return self
                        .add_problem(ProblemKind::UndeclaredChain(head.chain.to_owned()), range);
                };
                self.last_chain = Some((head.chain, *chain));
                *chain
            }
        };
        let words = line.start + head.words.start..line.start + head.words.end;
        if self.check_words(head.chain, words.clone()).is_none() {
            return;
        }
        let mut rule = Rule::from_checked_words(self.text.slice(words), line.number);
        (rule.packets, rule.bytes) = head.counters.unzip();
        if let Some(table) = self.dump.tables.last_mut() {
            table.chains[chain].rules.push(rule);
        }
    }

    /// Checks the words of a rule. `None` if the words cannot be parsed.
    fn check_words(&mut self, chain: &str, range: Range<usize>) -> Option<()> {
        let text = self.text;
        for piece in WordClassifier::new(&text[range.clone()]) {
            match piece {
                Ok(piece) => self.check_word(chain, &piece, range.start),
                Err(RuleError {
                    kind: wrong,
                    range: fault,
                }) => {
                    self.problems
                        .push(shift_problem(Problem::new(wrong, fault), range.start));
                    return None;
                }
            }
        }
        Some(())
    }

    fn check_word(&mut self, chain: &str, piece: &ClassifiedWord<'_>, start: usize) {
        let name = piece.word.text.as_ref();
        // Suggestions are computed only for reported problems, because the search is slow.
        let is_reported = self.problems.len() < MAX_REPORTED;
        let wrong = match piece.class {
            WordClass::Match if !extensions::is_match(name) => ProblemKind::UnknownMatch {
                name: name.to_owned(),
                suggestion: is_reported
                    .then(|| extensions::suggest_match(name))
                    .flatten(),
            },
            WordClass::Jump | WordClass::Goto if name == chain => {
                ProblemKind::SelfJump(name.to_owned())
            }
            WordClass::Jump | WordClass::Goto
                if !extensions::is_target(name) && !self.chains.contains_key(name) =>
            {
                let table = self.dump.tables.last();
                let chains = table.into_iter().flat_map(|table| &table.chains);
                let chains = chains
                    .take(MAX_SEARCHED_CHAINS)
                    .map(|chain| chain.name.as_str());
                ProblemKind::UnknownTarget {
                    name: name.to_owned(),
                    suggestion: is_reported
                        .then(|| extensions::suggest_target(name, chains))
                        .flatten(),
                }
            }
            _ => return,
        };
        let range = start + piece.word.range.start..start + piece.word.range.end;
        self.add_problem(wrong, range);
    }
}

fn is_rule(line: &str) -> bool {
    line.starts_with(['-', '['])
}

/// `iptables-save` and `ip6tables-save` print the same lines.
const SAVE_FORMAT: Format = Format::Rules(Family::V4, DumpedBackend::Default);

fn are_counters(text: &str) -> bool {
    let inside = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    inside
        .and_then(|inside| inside.split_once(':'))
        .is_some_and(|(packets, bytes)| {
            packets.parse::<u64>().is_ok() && bytes.parse::<u64>().is_ok()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_problem(text: &str) -> (usize, ProblemKind) {
        let error = IptablesRules::parse(text).unwrap_err();
        (error.line, error.kind)
    }

    fn all_problems(text: &str) -> Vec<(ProblemKind, String)> {
        let mut problems = Vec::new();
        let _ = IptablesRules::parse_with_problems(&Text::new(text), &mut problems);
        problems
            .into_iter()
            .map(|problem| (problem.kind, text[problem.range].to_owned()))
            .collect()
    }

    #[test]
    fn parse_keeps_vertical_tab_in_rule() {
        let text = "*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\u{b}\nCOMMIT\n";
        let dump = IptablesRules::parse(text).unwrap();
        let reparsed = IptablesRules::parse(&dump.to_string()).unwrap();
        let chain = |dump: &IptablesRules| dump.tables[0].chains[0].rules[0].canonical_text();
        assert_eq!(chain(&reparsed), chain(&dump));
    }

    #[test]
    fn parse_reads_tables_chains_policies_and_counters() {
        let dump = IptablesRules::parse(
            "# Generated by iptables-save\n*nat\n:OUTPUT DROP [3:180]\n:MINE - [0:0]\n\
             [12:720] -A OUTPUT -d 10.0.0.1/32 -j MINE\n-A MINE -j RETURN\nCOMMIT\n",
        )
        .unwrap();
        let output = dump.chain(Table::Nat, "OUTPUT").unwrap();
        assert_eq!(output.policy.as_deref(), Some("DROP"));
        assert_eq!(output.rules[0].packets, Some(12));
        assert_eq!(output.rules[0].line, 5);
        assert_eq!(dump.chain(Table::Nat, "MINE").unwrap().policy, None);
        assert!(dump.chain(Table::Filter, "OUTPUT").is_none());
    }

    #[test]
    fn parse_invalid_text_reports_line() {
        assert_eq!(
            first_problem("*nut\n"),
            (1, ProblemKind::UnknownTable("nut".into()))
        );
        assert_eq!(
            first_problem("\n-A X -j Y\n"),
            (2, ProblemKind::OutsideTable)
        );
        assert_eq!(
            first_problem("*nat\n-A X -j Y\nCOMMIT\n"),
            (2, ProblemKind::UndeclaredChain("X".into()))
        );
        assert_eq!(
            first_problem("*nat\n:X - [0:0]\n-A X -m comment --comment \"a -j Y\nCOMMIT\n"),
            (3, ProblemKind::UnclosedQuote)
        );
        assert_eq!(
            first_problem("*nat\n:X - [0:0]\n"),
            (1, ProblemKind::UncommittedTable("nat".into()))
        );
        assert_eq!(
            first_problem("*nat\n:X - [0:0]\n*filter\nCOMMIT\n"),
            (1, ProblemKind::UncommittedTable("nat".into()))
        );
        assert_eq!(
            first_problem("*nat\nhello\nCOMMIT"),
            (2, ProblemKind::UnknownLine(SAVE_FORMAT))
        );
        assert_eq!(
            first_problem("*nat\nCOMMIT\nCOMMIT"),
            (3, ProblemKind::OutsideTable)
        );
        assert_eq!(
            first_problem("*nat\n:X - [0:0]\n:X - [0:0]\nCOMMIT"),
            (
                3,
                ProblemKind::DuplicateChain {
                    name: "X".into(),
                    line: 2
                }
            )
        );
        assert_eq!(
            first_problem("*nat\nCOMMIT\n*nat\nCOMMIT"),
            (
                3,
                ProblemKind::DuplicateTable {
                    name: "nat".into(),
                    line: 1
                }
            )
        );
        assert_eq!(
            first_problem("*nat\n:X - [0:0\nCOMMIT"),
            (2, ProblemKind::InvalidCounters)
        );
        assert_eq!(
            first_problem("*nat\n:X\nCOMMIT"),
            (2, ProblemKind::InvalidChain)
        );
        assert!(matches!(
            first_problem("*nat\n:X ACCEPTED [0:0]\nCOMMIT"),
            (2, ProblemKind::InvalidValue { .. })
        ));
    }

    #[test]
    fn parse_impossible_rules_are_read_with_warnings() {
        let text = "*nat\n:X - [0:0]\n-A X -j X\n-A X -m addtype --dst-type LOCAL -j Z\nCOMMIT\n";
        assert_eq!(
            all_problems(text),
            [
                (ProblemKind::SelfJump("X".into()), "X".to_owned()),
                (
                    ProblemKind::UnknownMatch {
                        name: "addtype".into(),
                        suggestion: Some("addrtype".into())
                    },
                    "addtype".to_owned()
                ),
                (
                    ProblemKind::UnknownTarget {
                        name: "Z".into(),
                        suggestion: None
                    },
                    "Z".to_owned()
                ),
            ]
        );
        assert!(IptablesRules::parse(text).is_ok());
    }

    #[test]
    fn parse_reports_all_errors_and_keeps_valid_rules() {
        let text = "*nat\n:X - [0:0]\n-A Y -j X\n-A X oops\n-A X -j ACCEPT\nCOMMIT\n";
        assert_eq!(all_problems(text).len(), 2);
        let dump = IptablesRules::parse_with_problems(&Text::new(text), &mut Vec::new());
        assert_eq!(dump.chain(Table::Nat, "X").unwrap().rules.len(), 1);
    }
}
