//! Adds arguments of commands to outputs whose lines lack them: the interface of `tc`, and the table
//! of `ip route`.

use svclab_ruleset::tool::Format;

/// Argument of a command that the lines of its output lack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// Interface of `tc qdisc show dev eth0`.
    Device(String),
    /// Command of `tc class` and `tc filter`, with the interface first: `# tc filter show dev eth0
    /// ingress`.
    Listing(String),
    /// Table of `ip route show table 100`.
    Table(String),
}

/// Returns the scope of a command of `tc` with an interface. `None` without one.
pub(super) fn of_tc(object: &str, selectors: &[&str]) -> Option<Scope> {
    let index = selectors.iter().position(|word| *word == "dev")?;
    let device = *selectors.get(index + 1)?;
    if object == "qdisc" {
        return Some(Scope::Device(device.to_owned()));
    }
    // Without a place, `tc filter` prints the filters of the root.
    let others = selectors[..index].iter().chain(&selectors[index + 2..]);
    let others = others.filter(|word| **word != "root");
    let words = ["#", "tc", object, "show", "dev", device].into_iter();
    let words: Vec<&str> = words.chain(others.copied()).collect();
    Some(Scope::Listing(words.join(" ")))
}

/// Returns the table of an argument of `ip route`, as `ip route show table all` prints it (iproute2
/// 6.1, `lib/rt_names.c`).
pub(super) fn of_table(table: &str) -> Scope {
    let name = match table {
        "253" => "default",
        "254" => "main",
        "255" => "local",
        other => other,
    };
    Scope::Table(name.to_owned())
}

impl Scope {
    /// Adds the scope to the lines of an output. `start` is the index of its first line.
    pub(super) fn add_to(&self, format: Format, text: &str, start: usize) -> String {
        let lines = text.lines();
        match (self, format) {
            (Self::Device(device), Format::Qdiscs) => {
                joined(lines.map(|line| with_device(line, device)))
            }
            (Self::Table(table), Format::Routes(_)) => {
                joined(lines.map(|line| with_table(line, table)))
            }
            (Self::Listing(heading), Format::TrafficClasses | Format::TrafficFilters) => {
                if start == 0 {
                    return format!("{heading}\n{text}");
                }
                joined(lines.enumerate().map(|(index, line)| {
                    let is_before = index + 1 == start;
                    if is_before {
                        heading.clone()
                    } else {
                        line.to_owned()
                    }
                }))
            }
            _ => text.to_owned(),
        }
    }
}

fn joined(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| line + "\n").collect()
}

/// Adds an interface to a line of `tc qdisc`, after the handle.
fn with_device(line: &str, device: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    match words.as_slice() {
        ["qdisc", kind, handle, rest @ ..] if rest.first() != Some(&"dev") => {
            let rest = rest.join(" ");
            format!("qdisc {kind} {handle} dev {device} {rest}")
        }
        _ => line.to_owned(),
    }
}

/// Adds a table to a line of `ip route`, after the destination. Next hops have no table.
fn with_table(line: &str, table: &str) -> String {
    let is_route = !line.is_empty() && !line.starts_with([' ', '\t', '#', '[', '{']);
    let has_table = line.split_ascii_whitespace().any(|word| word == "table");
    if !is_route || has_table || line.starts_with("nexthop ") {
        return line.to_owned();
    }
    let first = line.split(' ').next().unwrap_or_default();
    let has_type = first != "default" && first.bytes().all(|byte| byte.is_ascii_lowercase());
    let mut words = line.splitn(if has_type { 3 } else { 2 }, ' ');
    let mut begin = words.next().unwrap_or_default().to_owned();
    if has_type {
        begin = format!("{begin} {}", words.next().unwrap_or_default());
    }
    format!("{begin} table {table} {}", words.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_ruleset::Family;

    #[test]
    fn lines_have_interface_and_table_of_command() {
        let routes = "default via 10.0.0.1 dev eth0 \nblackhole 10.8.0.0/16 \n10.5.0.0/16 \n\tnexthop via 10.0.0.2 dev eth0\n";
        let table = of_table("100").add_to(Format::Routes(Family::V4), routes, 0);
        let device = of_tc("qdisc", &["dev", "eth0"]);
        let device = device.map(|scope| {
            let text = "qdisc tbf 2: root refcnt 3\n Sent 0 bytes\nqdisc fq 0: dev eth0 root\n";
            scope.add_to(Format::Qdiscs, text, 0)
        });
        let listing = of_tc("filter", &["ingress", "dev", "eth0"]);
        let listing = listing.map(|scope| {
            scope.add_to(Format::TrafficFilters, "\n\nfilter protocol ip pref 1\n", 2)
        });
        let texts = [Some(table), device, listing].into_iter().flatten();
        insta::assert_snapshot!(texts.collect::<Vec<_>>().join("--\n"), @"
        default table 100 via 10.0.0.1 dev eth0 
        blackhole 10.8.0.0/16 table 100 
        10.5.0.0/16 table 100 
        	nexthop via 10.0.0.2 dev eth0
        --
        qdisc tbf 2: dev eth0 root refcnt 3
         Sent 0 bytes
        qdisc fq 0: dev eth0 root
        --

        # tc filter show dev eth0 ingress
        filter protocol ip pref 1
        ");
    }
}
