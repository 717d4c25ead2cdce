//! Parses the files of one node's dump and checks them against each other.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::converted::convert_json;
use super::merge;
use super::node::{File, NOT_SHOWN, NodeDump, ParsedDump};
use super::recognise::with_family;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::printable::{one_line, printable};
use svclab_diagnostic::source::{FileId, Source, Sources};
use svclab_ruleset::text::limits::MAX_REPORTED;
use svclab_ruleset::text::problem::{Problem, ProblemKind};
use svclab_ruleset::text::{Text, lines};
use svclab_ruleset::tool::Format;

/// File whose format is known.
struct ParsedFile {
    id: FileId,
    format: Format,
    text: Text,
    problems: Vec<Problem>,
}

impl NodeDump {
    /// Parses the files of a dump as far as they are valid. Replaces control characters in their
    /// text and names.
    #[must_use]
    pub fn parse(files: Vec<File>) -> ParsedDump {
        let sanitize = |file: File| File {
            name: one_line(&file.name).into_owned(),
            text: match printable(&file.text) {
                Cow::Borrowed(_) => file.text,
                Cow::Owned(text) => text,
            },
            ..file
        };
        let mut files: Vec<File> = files.into_iter().map(sanitize).collect();
        let conversions: Vec<Result<Vec<Problem>, Problem>> =
            files.iter_mut().map(convert_json).collect();
        let sources: Vec<Source> = files
            .iter()
            .map(|file| Source::from_text(&file.name, &file.text))
            .collect();
        let sources = Sources::new(sources);
        let mut dump = Self::default();
        let mut parsed: Vec<ParsedFile> = Vec::new();
        let mut diagnostics = Vec::new();
        for (((id, _), file), conversion) in sources.iter().zip(files).zip(conversions) {
            let File { name, format, text } = file;
            let detected = Format::detect(&text).map(|looks| with_family(looks, &text));
            let Some(format) = format.or(detected) else {
                diagnostics.push(unknown_format_error(&name, &text));
                continue;
            };
            let text = Text::new(text);
            let first_file = dump.files.get(&format).cloned();
            let mut second = Self::default();
            let is_of_routes = matches!(format, Format::Routes(_));
            let into = if first_file.is_some() || is_of_routes {
                &mut second
            } else {
                &mut dump
            };
            let problems = match conversion {
                Ok(mut problems) => {
                    problems.extend(into.parse_checked(format, detected, &text));
                    problems
                }
                Err(problem) => vec![problem],
            };
            if is_of_routes {
                diagnostics.extend(dump.add_routes(second, &name));
            } else if let Some(first) = first_file {
                let merged = merge::merge(&mut dump, second, format);
                let contradiction =
                    merged.map_err(|reason| contradiction_error(&first, &name, format, &reason));
                diagnostics.extend(contradiction.err());
            }
            dump.files.entry(format).or_insert(name);
            parsed.push(ParsedFile {
                id,
                format,
                text,
                problems,
            });
        }
        dump.check_sets(&mut parsed);
        dump.complete_links();
        let gaps = dump.unknown_state();
        let mut read = ParsedDump {
            dump,
            sources,
            diagnostics,
            gaps,
            problem_lines: BTreeSet::new(),
            lost_table_lines: BTreeSet::new(),
        };
        for file in parsed {
            read.add_problems(file);
        }
        read
    }

    /// Adds the routes of a file, which can contain both families. Returns an error for each family
    /// whose routes contradict those of an earlier file.
    fn add_routes(&mut self, file: Self, name: &str) -> Vec<Diagnostic> {
        let mut contradictions = Vec::new();
        for (family, routes) in file.routes {
            let format = Format::Routes(family);
            let Some(first) = self.files.get(&format).cloned() else {
                self.files.insert(format, name.to_owned());
                self.routes.insert(family, routes);
                continue;
            };
            let second = Self {
                routes: BTreeMap::from([(family, routes)]),
                ..Self::default()
            };
            if let Err(reason) = merge::merge(self, second, format) {
                contradictions.push(contradiction_error(&first, name, format, &reason));
            }
        }
        contradictions
    }

    /// Parses a file if its content can have the format. Returns the problems.
    fn parse_checked(
        &mut self,
        format: Format,
        detected: Option<Format>,
        text: &Text,
    ) -> Vec<Problem> {
        let mut problems = Vec::new();
        match detected {
            None if format.is_never_empty() && text.trim_ascii().is_empty() => {
                problems.push(Problem::new(ProblemKind::EmptyFile(format), 0..0));
            }
            None if is_json(text) && !reads_json(format) => {
                let end = text.find('\n').unwrap_or(text.len());
                problems.push(Problem::new(ProblemKind::Json(format), 0..end));
            }
            Some(looks) if !format.is_compatible_with(looks) => {
                let first = lines(text).find(|line| {
                    Format::detect(line.text).is_some_and(|line| line.is_compatible_with(looks))
                });
                let range = first.map_or(0..0, |line| line.start..line.end());
                let mismatch = ProblemKind::FormatMismatch {
                    named: format,
                    content: looks,
                };
                problems.push(Problem::new(mismatch, range));
            }
            _ => self.parse_file(format, text, &mut problems),
        }
        problems
    }

    /// Reports rules that refer to missing sets, if the dump has sets.
    fn check_sets(&self, parsed: &mut [ParsedFile]) {
        let (Some(sets), Some(file)) = (&self.sets, self.files.get(&Format::Sets)) else {
            return;
        };
        for ((ip, backing), dump) in &self.rules {
            let format = Format::Rules(*ip, *backing);
            let Some(parsed) = parsed.iter_mut().find(|file| file.format == format) else {
                continue;
            };
            let chains = dump.tables.iter().flat_map(|table| &table.chains);
            for rule in chains.flat_map(|chain| &chain.rules) {
                for (set, range) in rule.sets() {
                    if !sets.contains_key(set.as_ref()) {
                        let wrong = ProblemKind::MissingSet {
                            name: set.into_owned(),
                            file: file.clone(),
                        };
                        parsed.problems.push(Problem::new(wrong, range));
                    }
                }
            }
        }
    }
}

impl ParsedDump {
    /// Adds the problems of a file as diagnostics.
    fn add_problems(&mut self, file: ParsedFile) {
        let ParsedFile {
            id,
            text,
            mut problems,
            ..
        } = file;
        problems.sort_by_key(|problem| problem.range.start);
        let name = self.sources.get(id).map_or("", Source::name).to_owned();
        let lines = problem_lines(&text, &problems).map(|line| (name.clone(), line));
        for (place, problem) in lines.zip(&problems) {
            if problem.kind.loses_table() {
                self.lost_table_lines.insert(place.clone());
            }
            self.problem_lines.insert(place);
        }
        let (shown, hidden) = problems.split_at(problems.len().min(MAX_REPORTED));
        let shown = shown.iter().map(|problem| problem.diagnostic(id, &text));
        self.diagnostics.extend(shown);
        if hidden.is_empty() {
            return;
        }
        let message = format!("{name}: {} {NOT_SHOWN}", hidden.len());
        let is_error = |problem: &Problem| problem.diagnostic(id, "").is_error();
        self.diagnostics.push(if hidden.iter().any(is_error) {
            Diagnostic::error(message)
        } else {
            Diagnostic::warning(message)
        });
    }
}

/// Whether a file of this format may contain JSON.
fn reads_json(format: Format) -> bool {
    format == Format::ProxyConfiguration || format.has_json()
}

/// Whether the text is output of `nft -j` or `ip -json`.
fn is_json(text: &str) -> bool {
    matches!(
        text.trim_ascii_start().as_bytes(),
        [b'{' | b'[', b'{' | b'[' | b'"' | b']', ..]
    )
}

/// Returns the lines of problems, which must be sorted by position.
fn problem_lines<'p>(text: &'p str, problems: &'p [Problem]) -> impl Iterator<Item = u32> + 'p {
    let (mut offset, mut line) = (0, 1);
    problems.iter().map(move |problem| {
        let start = text.floor_char_boundary(problem.range.start).max(offset);
        let passed = text[offset..start].bytes().filter(|byte| *byte == b'\n');
        line += u32::try_from(passed.count()).unwrap_or(u32::MAX);
        offset = start;
        line
    })
}

/// Returns an error for two files of one program that contradict each other.
fn contradiction_error(first: &str, second: &str, format: Format, reason: &str) -> Diagnostic {
    let message = format!("{second} and {first} contain different output of `{format}`: {reason}");
    Diagnostic::error(message).with_help("keep the file that is right".to_owned())
}

fn unknown_format_error(name: &str, text: &str) -> Diagnostic {
    if text.trim_ascii().is_empty() {
        return Diagnostic::error(format!("{name}: the file is empty")).with_help(
            "specify a file with program output, or a tarball of `svclab collect-node`",
        );
    }
    if is_json(text) {
        return Diagnostic::error(format!("{name}: JSON is not supported"))
            .with_help("save the output without the JSON option, `-j` or `-json`");
    }
    let names = "iptables-save, ip6tables-save, ipset-save, nft, ipvsadm-Sn, ip-addr, ip-route, \
                 ip-6-route, ip-rule, ip-6-rule, ip-neigh, bridge-fdb, bridge-link or sysctl-a";
    Diagnostic::error(format!(
        "{name}: neither the file name nor the content identifies the program that printed the file"
    ))
    .with_help(format!("rename the file to {names}"))
}
