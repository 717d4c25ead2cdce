//! Parses the output of `sysctl -a`.

use std::borrow::Cow;

use indexmap::IndexMap;

use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Text, lines};
use crate::tool::Format;

/// Sysctls by name, in printed order. A dot in an interface name is a slash in the sysctl name:
/// `net.ipv4.conf.eth0/100.rp_filter`.
pub type Sysctls = IndexMap<String, Sysctl>;

/// Value of a sysctl.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysctl {
    /// Lines of the value, nearly always one. Whitespace separates the parts of a line.
    pub values: Vec<Text>,
    /// Line number of the first line, from 1.
    pub line: u32,
}

/// Beginnings of the names of sysctls of an interface.
const OF_INTERFACES: [&str; 4] = [
    "net.ipv4.conf.",
    "net.ipv4.neigh.",
    "net.ipv6.conf.",
    "net.ipv6.neigh.",
];

/// Returns the name of a sysctl with a slash for each dot in the name of its interface. busybox
/// prints both as dots (busybox 1.36, `procps/sysctl.c`, `sysctl_act_on_setting`).
fn with_slashes(key: &str) -> Cow<'_, str> {
    let mut prefixes = OF_INTERFACES.iter();
    let found = prefixes.find_map(|prefix| {
        let (interface, last) = key.strip_prefix(prefix)?.rsplit_once('.')?;
        let interface = interface
            .contains('.')
            .then(|| interface.replace('.', "/"))?;
        Some(format!("{prefix}{interface}.{last}"))
    });
    found.map_or(Cow::Borrowed(key), Cow::Owned)
}

/// Parses the output of `sysctl -a`. Error messages about sysctls that `sysctl` could not read are
/// skipped. Other lines that cannot be parsed are added to `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Sysctls {
    let mut sysctls = Sysctls::new();
    let mut previous_key = String::new();
    for line in lines(text) {
        if line.text.starts_with(['#', ';']) || line.text.starts_with("sysctl: ") {
            continue;
        }
        let range = line.start..line.end();
        let Some((key, value)) = line.text.split_once('=') else {
            problems.push(Problem::new(
                ProblemKind::UnknownLine(Format::Sysctls),
                range,
            ));
            continue;
        };
        let key = key.trim_ascii_end();
        if !key.contains('.') || key.contains(|c: char| c.is_ascii_whitespace()) {
            problems.push(Problem::new(
                ProblemKind::UnknownLine(Format::Sysctls),
                range,
            ));
            continue;
        }
        let key = with_slashes(key);
        let value = value.trim_ascii_start();
        let value = text.slice(line.end() - value.len()..line.end());
        if let Some(existing) = sysctls.get_mut(&*key) {
            // `sysctl` prints the name before each line of a multi-line value.
            if key == previous_key {
                existing.values.push(value);
                continue;
            }
            let wrong = ProblemKind::Duplicate {
                item: format!("sysctl `{key}`"),
                line: existing.line,
            };
            problems.push(Problem::new(wrong, range));
            continue;
        }
        previous_key.clear();
        previous_key.push_str(&key);
        let sysctl = Sysctl {
            values: vec![value],
            line: line.number,
        };
        sysctls.insert(key.into_owned(), sysctl);
    }
    sysctls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_sysctl_output_returns_values() {
        let text = "net.ipv4.conf.eth0/100.rp_filter = 1\nnet.ipv4.tcp_rmem = 4096\t131072\t33554432\n\
                    sysctl: permission denied on key 'fs.protected_fifos'\nkernel.core_pattern = |a = b\n\
                    net.ipv4.ip_local_reserved_ports = \nkernel.core_modes = file\nkernel.core_modes = pipe\n";
        let mut problems = Vec::new();
        let sysctls = parse(&Text::new(text), &mut problems);
        assert_eq!(problems, []);
        let values = |key: &str| -> Vec<&str> {
            let values = sysctls[key].values.iter();
            values.map(|value| &**value).collect()
        };
        assert_eq!(values("net.ipv4.conf.eth0/100.rp_filter"), ["1"]);
        assert_eq!(values("kernel.core_pattern"), ["|a = b"]);
        assert_eq!(values("net.ipv4.ip_local_reserved_ports"), [""]);
        assert_eq!(values("kernel.core_modes"), ["file", "pipe"]);
    }

    #[test]
    fn parse_busybox_output_returns_names_with_slashes() {
        let text = "net.ipv4.conf.flannel.1.rp_filter = 1\nnet.ipv6.neigh.eth0.1.2.gc_stale_time = 60\n\
                    net.ipv4.conf.all.rp_filter = 0\n";
        let sysctls = parse(&Text::new(text), &mut Vec::new());
        let names: Vec<&String> = sysctls.keys().collect();
        assert_eq!(
            names,
            [
                "net.ipv4.conf.flannel/1.rp_filter",
                "net.ipv6.neigh.eth0/1/2.gc_stale_time",
                "net.ipv4.conf.all.rp_filter"
            ]
        );
    }

    #[test]
    fn parse_invalid_lines_reports_positions() {
        let text = "net.ipv4.ip_forward\nnet.a = 1\nnet.b = 1\nnet.a = 2\na b.c = 1\n";
        let mut problems = Vec::new();
        let _ = parse(&Text::new(text), &mut problems);
        let places: Vec<&str> = problems.iter().map(|p| &text[p.range.clone()]).collect();
        assert_eq!(places, ["net.ipv4.ip_forward", "net.a = 2", "a b.c = 1"]);
    }
}
