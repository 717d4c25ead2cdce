//! Parses the output of `iptables-save`. Input: text. Output: all rules that can be parsed, and all
//! errors.

use std::collections::HashMap;
use std::ops::Range;

use thiserror::Error;

use super::pieces::{Fault, Kind, Piece, Pieces};
use super::rule::{self, Rule, shifted};
use super::{Chain, Dump, TableDump, known};
use crate::iptables::script::Table;
use crate::text::limits::MAX_TOLD;
use crate::text::problem::{Problem, Wrong};
use crate::text::{Line, Text, lines};
use crate::tool::{Backing, Format, Ip};
use svclab_diagnostic::Severity;

/// Error for a text that is not the output of `iptables-save`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct ParseError {
    /// Line number, from 1.
    pub line: usize,
    /// Error in the line.
    pub problem: Wrong,
}

impl Dump {
    /// Parses the output of `iptables-save` with or without `-c`. Blank lines, comment lines (`#`)
    /// and surrounding whitespace are ignored. Problems that are only warnings are ignored, see
    /// [`Dump::read`].
    ///
    /// # Errors
    ///
    /// Returns the first error with its line.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut problems = Vec::new();
        let dump = Self::read(&Text::new(text), &mut problems);
        let first = problems
            .into_iter()
            .filter(|problem| problem.severity() == Severity::Error)
            .min_by_key(|problem| problem.at.start);
        match first {
            None => Ok(dump),
            Some(Problem { wrong, at }) => Err(ParseError {
                line: text[..at.start].matches('\n').count() + 1,
                problem: wrong,
            }),
        }
    }

    /// Parses the output of `iptables-save`. Lines that cannot be parsed are skipped and added to
    /// `problems`.
    #[must_use]
    pub fn read(text: &Text, problems: &mut Vec<Problem>) -> Self {
        let mut reader = Reader {
            text,
            problems,
            dump: Self::default(),
            open: None,
            again: false,
            begun: Vec::new(),
            chains: HashMap::new(),
            last: None,
        };
        let mut last = None;
        for line in lines(text) {
            reader.line(line);
            last = Some(line);
        }
        // A truncated rule can be valid but have another meaning, for example if a port lacks a
        // digit.
        if let Some(line) = last.filter(|line| reader.open.is_some() && line.end() == text.len()) {
            let cut = is_rule(line.text);
            if let Some(chain) = reader.last.filter(|_| cut).map(|(_, chain)| chain)
                && let Some(table) = reader.dump.tables.last_mut()
                && let Some(rules) = table.chains.get_mut(chain).map(|chain| &mut chain.rules)
                && rules.last().is_some_and(|rule| rule.line == line.number)
            {
                rules.pop();
            }
            if cut {
                reader.wrong(Wrong::Cut, line.start..line.end());
            }
        }
        reader.close();
        reader.dump
    }
}

/// Maximum number of chains that are searched for a similar name.
const MAX_SEARCHED: usize = 5000;

struct Reader<'t, 'p> {
    text: &'t Text,
    problems: &'p mut Vec<Problem>,
    dump: Dump,
    /// Range of the line that starts the open table. `None` outside of a table.
    open: Option<Range<usize>>,
    /// Whether the open table is a duplicate, which is skipped.
    again: bool,
    /// Tables so far, with the line numbers where they start.
    begun: Vec<(Table, u32)>,
    /// Index and line number of each chain of the open table, by name.
    chains: HashMap<&'t str, (usize, u32)>,
    /// Chain of the last rule. The next rule usually belongs to the same chain.
    last: Option<(&'t str, usize)>,
}

impl<'t> Reader<'t, '_> {
    fn wrong(&mut self, wrong: Wrong, at: Range<usize>) {
        self.problems.push(Problem::new(wrong, at));
    }

    fn line(&mut self, line: Line<'t>) {
        let whole = line.start..line.end();
        match line.text.as_bytes()[0] {
            b'#' => {}
            b'*' => self.table(line),
            _ if self.open.is_none() => {
                let known = line.text == "COMMIT"
                    || line.text.starts_with([':', '['])
                    || line.text.starts_with("-A ");
                let wrong = if known {
                    Wrong::Outside
                } else {
                    Wrong::Line(SAVE)
                };
                self.wrong(wrong, whole);
            }
            b':' | b'-' | b'[' if self.again => {}
            b':' => self.chain(line),
            b'-' | b'[' => self.rule(line),
            _ if line.text == "COMMIT" => self.open = None,
            _ => self.wrong(Wrong::Line(SAVE), whole),
        }
    }

    fn table(&mut self, line: Line<'t>) {
        self.close();
        let whole = line.start..line.end();
        let name = line.text[1..].trim_ascii();
        let Some(table) = Table::from_name(name) else {
            self.wrong(Wrong::Table(name.to_owned()), whole);
            return;
        };
        if let Some((_, first)) = self.begun.iter().find(|(known, _)| *known == table) {
            let wrong = Wrong::TableTwice {
                name: name.to_owned(),
                line: *first,
            };
            self.wrong(wrong, whole.clone());
            // Duplicate rules would have a double effect.
            self.again = true;
            self.open = Some(whole);
            return;
        }
        self.again = false;
        self.begun.push((table, line.number));
        self.dump.tables.push(TableDump {
            table,
            chains: Vec::new(),
        });
        self.chains.clear();
        self.last = None;
        self.open = Some(whole);
    }

    /// Ends the open table, at the end of the text or before the next table. Reports a missing
    /// `COMMIT`.
    fn close(&mut self) {
        if let Some(begun) = self.open.take() {
            let name = self.text[begun.start + 1..begun.end].trim_ascii();
            self.wrong(Wrong::Unfinished(name.to_owned()), begun);
        }
    }

    fn chain(&mut self, line: Line<'t>) {
        let whole = line.start..line.end();
        let mut words = line.text[1..].split_ascii_whitespace();
        let (Some(name), Some(policy), counters, None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return self.wrong(Wrong::Chain, whole);
        };
        if counters.is_some_and(|counters| !are_counters(counters)) {
            return self.wrong(Wrong::Counters, whole);
        }
        let policy = match policy {
            "-" => None,
            "ACCEPT" | "DROP" | "QUEUE" | "REJECT" => Some(policy.to_owned()),
            other => {
                let wrong = Wrong::Value {
                    value: other.to_owned(),
                    wanted: "a policy: ACCEPT, DROP, or - for none",
                };
                return self.wrong(wrong, whole);
            }
        };
        if let Some((_, first)) = self.chains.get(name) {
            let wrong = Wrong::ChainTwice {
                name: name.to_owned(),
                line: *first,
            };
            return self.wrong(wrong, whole);
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

    fn rule(&mut self, line: Line<'t>) {
        let head = match rule::head(line.text) {
            Ok(head) => head,
            Err(problem) => {
                self.problems.push(shifted(problem, line.start));
                return;
            }
        };
        let chain = match self.last {
            Some((name, chain)) if name == head.chain => chain,
            _ => {
                let Some((chain, _)) = self.chains.get(head.chain) else {
                    let at = line.start + head.chain_at.start..line.start + head.chain_at.end;
                    return self.wrong(Wrong::Undeclared(head.chain.to_owned()), at);
                };
                self.last = Some((head.chain, *chain));
                *chain
            }
        };
        let words = line.start + head.words.start..line.start + head.words.end;
        if self.look(head.chain, words.clone()).is_none() {
            return;
        }
        let mut rule = Rule::of_read(self.text.piece(words), line.number);
        (rule.packets, rule.bytes) = head.counters.unzip();
        if let Some(table) = self.dump.tables.last_mut() {
            table.chains[chain].rules.push(rule);
        }
    }

    /// Checks the words of a rule. `None` if the words cannot be parsed.
    fn look(&mut self, chain: &str, at: Range<usize>) -> Option<()> {
        let text = self.text;
        for piece in Pieces::new(&text[at.clone()]) {
            match piece {
                Ok(piece) => self.piece(chain, &piece, at.start),
                Err(Fault { wrong, at: fault }) => {
                    self.problems
                        .push(shifted(Problem::new(wrong, fault), at.start));
                    return None;
                }
            }
        }
        Some(())
    }

    fn piece(&mut self, chain: &str, piece: &Piece<'_>, start: usize) {
        let name = piece.word.text.as_ref();
        // Suggestions are computed only for reported problems, because the search is slow.
        let told = self.problems.len() < MAX_TOLD;
        let wrong = match piece.kind {
            Kind::Match if !known::is_match(name) => Wrong::Match {
                name: name.to_owned(),
                meant: told.then(|| known::meant_match(name)).flatten(),
            },
            Kind::Jump | Kind::Goto if name == chain => Wrong::Loop(name.to_owned()),
            Kind::Jump | Kind::Goto
                if !known::is_target(name) && !self.chains.contains_key(name) =>
            {
                let table = self.dump.tables.last();
                let chains = table.into_iter().flat_map(|table| &table.chains);
                let chains = chains.take(MAX_SEARCHED).map(|chain| chain.name.as_str());
                Wrong::Target {
                    name: name.to_owned(),
                    meant: told.then(|| known::meant_target(name, chains)).flatten(),
                }
            }
            _ => return,
        };
        let at = start + piece.word.at.start..start + piece.word.at.end;
        self.wrong(wrong, at);
    }
}

fn is_rule(line: &str) -> bool {
    line.starts_with(['-', '['])
}

/// `iptables-save` and `ip6tables-save` print the same lines.
const SAVE: Format = Format::Rules(Ip::V4, Backing::Default);

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

    fn problem(text: &str) -> (usize, Wrong) {
        let error = Dump::parse(text).unwrap_err();
        (error.line, error.problem)
    }

    fn problems(text: &str) -> Vec<(Wrong, String)> {
        let mut problems = Vec::new();
        let _ = Dump::read(&Text::new(text), &mut problems);
        problems
            .into_iter()
            .map(|problem| (problem.wrong, text[problem.at].to_owned()))
            .collect()
    }

    #[test]
    fn what_is_no_blank_to_iptables_stays() {
        let text = "*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\u{b}\nCOMMIT\n";
        let dump = Dump::parse(text).unwrap();
        let again = Dump::parse(&dump.to_string()).unwrap();
        let chain = |dump: &Dump| dump.tables[0].chains[0].rules[0].text();
        assert_eq!(chain(&again), chain(&dump));
    }

    #[test]
    fn tables_chains_policies_and_counters_are_read() {
        let dump = Dump::parse(
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
    fn the_line_at_fault_is_named() {
        assert_eq!(problem("*nut\n"), (1, Wrong::Table("nut".into())));
        assert_eq!(problem("\n-A X -j Y\n"), (2, Wrong::Outside));
        assert_eq!(
            problem("*nat\n-A X -j Y\nCOMMIT\n"),
            (2, Wrong::Undeclared("X".into()))
        );
        assert_eq!(
            problem("*nat\n:X - [0:0]\n-A X -m comment --comment \"a -j Y\nCOMMIT\n"),
            (3, Wrong::Quote)
        );
        assert_eq!(
            problem("*nat\n:X - [0:0]\n"),
            (1, Wrong::Unfinished("nat".into()))
        );
        assert_eq!(
            problem("*nat\n:X - [0:0]\n*filter\nCOMMIT\n"),
            (1, Wrong::Unfinished("nat".into()))
        );
        assert_eq!(problem("*nat\nhello\nCOMMIT"), (2, Wrong::Line(SAVE)));
        assert_eq!(problem("*nat\nCOMMIT\nCOMMIT"), (3, Wrong::Outside));
        assert_eq!(
            problem("*nat\n:X - [0:0]\n:X - [0:0]\nCOMMIT"),
            (
                3,
                Wrong::ChainTwice {
                    name: "X".into(),
                    line: 2
                }
            )
        );
        assert_eq!(
            problem("*nat\nCOMMIT\n*nat\nCOMMIT"),
            (
                3,
                Wrong::TableTwice {
                    name: "nat".into(),
                    line: 1
                }
            )
        );
        assert_eq!(problem("*nat\n:X - [0:0\nCOMMIT"), (2, Wrong::Counters));
        assert_eq!(problem("*nat\n:X\nCOMMIT"), (2, Wrong::Chain));
        assert!(matches!(
            problem("*nat\n:X ACCEPTED [0:0]\nCOMMIT"),
            (2, Wrong::Value { .. })
        ));
    }

    #[test]
    fn what_no_kernel_holds_is_read_and_told() {
        let text = "*nat\n:X - [0:0]\n-A X -j X\n-A X -m addtype --dst-type LOCAL -j Z\nCOMMIT\n";
        assert_eq!(
            problems(text),
            [
                (Wrong::Loop("X".into()), "X".to_owned()),
                (
                    Wrong::Match {
                        name: "addtype".into(),
                        meant: Some("addrtype".into())
                    },
                    "addtype".to_owned()
                ),
                (
                    Wrong::Target {
                        name: "Z".into(),
                        meant: None
                    },
                    "Z".to_owned()
                ),
            ]
        );
        assert!(Dump::parse(text).is_ok());
    }

    #[test]
    fn all_that_is_wrong_is_told_and_the_rest_is_read() {
        let text = "*nat\n:X - [0:0]\n-A Y -j X\n-A X oops\n-A X -j ACCEPT\nCOMMIT\n";
        assert_eq!(problems(text).len(), 2);
        let dump = Dump::read(&Text::new(text), &mut Vec::new());
        assert_eq!(dump.chain(Table::Nat, "X").unwrap().rules.len(), 1);
    }
}
