//! Parses the output of `ipset list` (ipset 7.17, `lib/session.c`, `list_create` and `list_add`).

use super::saved::{Sets, line_problem, parse_add, parse_create};
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Field, Line, Text, fields, lines};

/// Whether a text is a listing, and not output of `ipset save`.
#[must_use]
pub fn is_listing(text: &str) -> bool {
    let mut lines = lines(text).filter(|line| !line.text.starts_with('#'));
    lines
        .next()
        .is_some_and(|line| line.text.starts_with("Name: "))
}

/// Parses the output of `ipset list`. Lines that cannot be parsed are skipped and added to
/// `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Sets {
    let mut sets = Sets::new();
    let mut set = ListedSet::default();
    for line in lines(text).filter(|line| !line.text.starts_with('#')) {
        if line.text.starts_with("Name: ") {
            problems.extend(set.missing_entries(&sets));
            set = ListedSet {
                name: fields(line).nth(1),
                ..ListedSet::default()
            };
            continue;
        }
        problems.extend(set.read_line(text, line, &mut sets).err());
    }
    problems.extend(set.missing_entries(&sets));
    sets
}

/// Set that is being read.
#[derive(Default)]
struct ListedSet<'t> {
    name: Option<Field<'t>>,
    kind: Option<Field<'t>>,
    /// Number of entries according to the listing. ipset 6 does not print the number.
    count: Option<usize>,
    has_members: bool,
}

impl<'t> ListedSet<'t> {
    fn read_line(&mut self, text: &Text, line: Line<'t>, sets: &mut Sets) -> Result<(), Problem> {
        let Some(name) = self.name else {
            return Err(line_problem(line));
        };
        if self.has_members {
            let mut words = std::iter::once(name).chain(fields(line));
            return parse_add(text, line, &mut words, sets);
        }
        let mut words = fields(line);
        match words.next().map(|word| word.text) {
            Some("Type:") => self.kind = words.next(),
            Some("Header:") => {
                let kind = self.kind.ok_or_else(|| line_problem(line))?;
                let mut words = [name, kind].into_iter().chain(words);
                parse_create(text, line, &mut words, sets)?;
            }
            Some("Number") => {
                self.count = words.last().and_then(|number| number.text.parse().ok());
            }
            Some("Members:") => self.has_members = true,
            Some("Revision:" | "Size" | "References:") => {}
            _ => return Err(line_problem(line)),
        }
        Ok(())
    }

    /// Returns the error of a set that lists fewer entries than it has: `ipset list -terse`.
    fn missing_entries(&self, sets: &Sets) -> Option<Problem> {
        let name = self.name?;
        let listed = sets.get(name.text).map_or(0, |set| set.entries.len());
        let expected = self.count.filter(|expected| *expected != listed)?;
        let wrong = ProblemKind::MissingEntries { expected, listed };
        Some(Problem::new(wrong, name.range()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of ipset 7.17.
    const TEXT: &str = "\
Name: KUBE-CLUSTER-IP
Type: hash:ip,port
Revision: 6
Header: family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0xd8f3e3a1
Size in memory: 344
References: 2
Number of entries: 2
Members:
10.96.0.10,udp:53
10.96.0.1,tcp:443 comment \"a b\"

Name: KUBE-6
Type: hash:ip
Revision: 5
Header: family inet6 hashsize 1024 maxelem 65536
Size in memory: 344
References: 0
Number of entries: 1
Members:
fd00::1
";

    #[test]
    fn parse_listing_equals_saved_sets() {
        let saved = "create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0xd8f3e3a1\n\
                     add KUBE-CLUSTER-IP 10.96.0.10,udp:53\nadd KUBE-CLUSTER-IP 10.96.0.1,tcp:443 comment \"a b\"\n\
                     create KUBE-6 hash:ip family inet6 hashsize 1024 maxelem 65536\nadd KUBE-6 fd00::1\n";
        let mut problems = Vec::new();
        let listed = parse(&Text::new(TEXT), &mut problems);
        let saved = super::super::saved::parse(&Text::new(saved), &mut problems);
        assert_eq!(problems, []);
        assert!(is_listing(TEXT));
        let render = |sets: &Sets| crate::input::ProgramInput::render(sets);
        assert_eq!(render(&listed), render(&saved));
    }

    #[test]
    fn parse_incomplete_listing_reports_positions() {
        let terse = TEXT.replace("10.96.0.10,udp:53\n", "");
        let other = "Name: A\nHeader: family inet\nhello\nName: B\nType: hash:ip\nHeader: family inet\nMembers:\n1,2\n";
        for (text, expected) in [
            (terse.as_str(), vec!["KUBE-CLUSTER-IP"]),
            (other, vec!["Header: family inet", "hello", "1,2"]),
        ] {
            let mut problems = Vec::new();
            let _ = parse(&Text::new(text), &mut problems);
            let places: Vec<&str> = problems.iter().map(|p| &text[p.range.clone()]).collect();
            assert_eq!(places, expected);
        }
    }
}
