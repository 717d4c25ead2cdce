//! Renders the differences between two dumps, for people and programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use schemars::JsonSchema;
use serde::Serialize;

use crate::text::{count, join_and, with_colour};
use svclab_diagnostic::printable::one_line;
use svclab_dump::{Difference, DumpChange, Side, uncollected_state};

/// Name and version of the JSON format.
pub const SCHEMA: &str = "svclab/diff/v1";

const FIRST: Style = AnsiColor::Red.on_default();
const SECOND: Style = AnsiColor::Green.on_default();
const CHANGED: Style = AnsiColor::Yellow.on_default();
const TITLE: Style = Style::new().bold();

/// Comparison of two dumps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiffDocument {
    /// Always `svclab/diff/v1`.
    pub schema: String,
    /// First dump, as given by the user.
    pub first: String,
    /// Second dump, as given by the user.
    pub second: String,
    /// Programs whose output both dumps contain, such as `iptables-save`.
    pub compared: Vec<String>,
    /// Whether the compared outputs are equivalent.
    pub same: bool,
    /// Files of the dumps that are not compared; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_compared: Vec<String>,
    /// Differences, grouped by location.
    pub differences: Vec<Difference>,
}

impl DiffDocument {
    /// Creates the document of a comparison.
    #[must_use]
    pub fn new(
        first: impl Into<String>,
        second: impl Into<String>,
        compared: Vec<String>,
        differences: Vec<Difference>,
    ) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            first: first.into(),
            second: second.into(),
            compared,
            same: differences.is_empty(),
            not_compared: Vec::new(),
            differences,
        }
    }

    /// Adds the files of the dumps that are not compared.
    #[must_use]
    pub fn with_not_compared(mut self, files: Vec<String>) -> Self {
        self.not_compared = files;
        self
    }

    /// Whether the dumps are equivalent, and all of their files were compared.
    #[must_use]
    pub fn is_equivalent(&self) -> bool {
        self.same && self.not_compared.is_empty()
    }

    /// Renders the comparison like a diff, grouped by location. `-` is only in the first dump, `+`
    /// only in the second, `~` moved, `!` has another value. Each line has the line number of the
    /// file and the owner.
    #[must_use]
    pub fn render_text(&self, colour: bool) -> String {
        let mut text = String::new();
        let Self {
            first,
            second,
            compared,
            differences,
            not_compared,
            ..
        } = self;
        if differences.is_empty() {
            let _ = writeln!(text, "no difference in {}", join_and(compared));
            // Somebody who compares a file or two knows what they contain.
            if compared.len() > 2 {
                let absent = uncollected_state(|format| {
                    compared.iter().any(|program| program == format.command())
                });
                let _ = writeln!(text, "not looked at: {}", join_and(&absent));
            }
            if !not_compared.is_empty() {
                let files = count(not_compared.len(), "file is", "files are");
                let _ = writeln!(text, "{files} not compared, so the nodes may differ:");
                for file in not_compared {
                    let _ = writeln!(text, "  {}", sanitize(file));
                }
            }
            return text;
        }
        let _ = writeln!(text, "{FIRST}--- {}{FIRST:#}", sanitize(first));
        let _ = writeln!(text, "{SECOND}+++ {}{SECOND:#}", sanitize(second));
        for location in differences.chunk_by(|a, b| a.location == b.location) {
            push_location(&mut text, location);
        }
        let mut counts: BTreeMap<(&str, Option<&str>), usize> = BTreeMap::new();
        for difference in differences {
            let program = difference.location.program();
            let programs = (program, difference.repeated_in.as_deref());
            *counts.entry(programs).or_default() += 1;
        }
        let counts = counts.iter().map(|(programs, count)| match programs {
            (program, None) => format!("{count} in {program}"),
            (program, Some(other)) => format!("{count} in both {program} and {other}"),
        });
        let total = count(differences.len(), "difference", "differences");
        let _ = writeln!(text, "\n{total}: {}", join_and(counts));
        with_colour(text, colour)
    }
}

fn push_location(text: &mut String, differences: &[Difference]) {
    let Some(head) = differences.first() else {
        return;
    };
    // A common owner is printed once.
    let has_common_owner = differences
        .iter()
        .all(|difference| difference.owner == head.owner);
    let common = head.owner.as_ref().filter(|_| has_common_owner);
    let title = match common {
        Some(owner) => format!("{} ({owner})", head.location),
        None => head.location.to_string(),
    };
    let title = match &head.repeated_in {
        Some(program) => format!("{title}, also in {program}"),
        None => title,
    };
    let _ = writeln!(text, "\n{TITLE}{}{TITLE:#}", sanitize(&title));
    for Difference { change, owner, .. } in differences {
        let own = owner.as_ref().filter(|_| !has_common_owner);
        let owner = own.map_or_else(String::new, |owner| {
            format!("  ({})", sanitize(&owner.to_string()))
        });
        let (style, line) = render_change(change);
        let _ = writeln!(text, "  {style}{line}{owner}{style:#}");
    }
}

/// Renders one line, without the owner: sign, line number and object.
fn render_change(change: &DumpChange) -> (Style, String) {
    // Output that is not a file of lines has line 0.
    let number = |line: u32| match line {
        0 => String::new(),
        line => line.to_string(),
    };
    match change {
        DumpChange::Whole { only, line } => {
            let which = match only {
                Side::First => "only in the first",
                Side::Second => "only in the second",
            };
            (
                side_style(*only),
                format!("{} {:>5}  ({which})", only.sign(), number(*line)),
            )
        }
        DumpChange::Item { only, item, line } => (
            side_style(*only),
            format!("{} {:>5}  {}", only.sign(), number(*line), sanitize(item)),
        ),
        DumpChange::Moved {
            item,
            first,
            second,
        } => {
            let to = match second {
                0 => String::new(),
                line => format!(" to line {line}"),
            };
            (
                CHANGED,
                format!("~ {:>5}  {}  (moved{to})", number(*first), sanitize(item)),
            )
        }
        DumpChange::Value {
            property,
            first,
            second,
        } => {
            let value = |value: &Option<String>| match value.as_deref() {
                None => "none".to_owned(),
                Some("") => "nothing".to_owned(),
                Some(value) => sanitize(value),
            };
            let (property, first, second) = (sanitize(property), value(first), value(second));
            (CHANGED, format!("! {property}: {first}, then {second}"))
        }
    }
}

/// Removes control characters from a text of a file.
fn sanitize(text: &str) -> String {
    one_line(text).into_owned()
}

const fn side_style(side: Side) -> Style {
    match side {
        Side::First => FIRST,
        Side::Second => SECOND,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use svclab_dump::{File, NodeDump};

    fn dump(files: &[(&str, &str)]) -> NodeDump {
        let files = files.iter().map(|(name, text)| File {
            name: (*name).to_owned(),
            format: svclab_ruleset::tool::Format::from_file_name(name),
            text: (*text).to_owned(),
        });
        let read = NodeDump::parse(files.collect());
        assert!(read.has_no_errors(), "{:?}", read.diagnostics);
        read.dump
    }

    /// Returns a comparison with differences of every kind.
    pub fn document() -> DiffDocument {
        let first = dump(&[
            (
                "iptables-save",
                "*nat\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-A - [0:0]\n:KUBE-SEP-A - [0:0]\n\
                 -A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n-A OUTPUT -j RETURN\n-A OUTPUT -s 10.0.0.0/8 -j RETURN\n\
                 -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment \"default/a:p cluster IP\" -m tcp --dport 80 -j KUBE-SVC-A\n\
                 -A KUBE-SVC-A -j KUBE-SEP-A\n-A KUBE-SEP-A -p tcp -m tcp -j DNAT --to-destination 10.244.1.5:8080\nCOMMIT\n",
            ),
            (
                "ipset-save",
                "create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536\n\
                 add KUBE-CLUSTER-IP 10.96.0.1,tcp:80\nadd KUBE-CLUSTER-IP 10.96.0.2,tcp:80\n",
            ),
            (
                "ipvsadm-Sn",
                "-A -t 10.96.0.1:80 -s rr\n-a -t 10.96.0.1:80 -r 10.244.1.5:8080 -m -w 1\n",
            ),
            (
                "ip-addr",
                "2: eth0: <BROADCAST,UP> mtu 1500 state UP\n    inet 10.0.0.1/24 scope global eth0\n    inet 10.0.0.2/24 scope global secondary eth0\n",
            ),
            (
                "ip-route",
                "default via 10.0.0.9 dev eth0\n10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink\n",
            ),
            (
                "ip-rule",
                "0: from all lookup local\n32766: from all lookup main\n",
            ),
            (
                "sysctl-a",
                "net.ipv4.ip_forward = 1\nnet.ipv4.conf.all.rp_filter = 0\n",
            ),
        ]);
        let second = dump(&[
            (
                "iptables-save",
                "*nat\n:OUTPUT DROP [0:0]\n:KUBE-SERVICES - [0:0]\n:MINE - [0:0]\n\
                 -A OUTPUT -s 10.0.0.0/8 -j RETURN\n\
                 -A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
                 -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment \"default/a:p has no endpoints \u{1b}[2J\" -m tcp --dport 80 -j RETURN\n\
                 -A MINE -j RETURN\nCOMMIT\n",
            ),
            (
                "ipset-save",
                "create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 2048 maxelem 100\n\
                 add KUBE-CLUSTER-IP 10.96.0.2,tcp:80\n",
            ),
            (
                "ipvsadm-Sn",
                "-A -t 10.96.0.1:80 -s wrr -p 10800\n-a -t 10.96.0.1:80 -r 10.244.1.5:8080 -m -w 2\n",
            ),
            (
                "ip-addr",
                "2: eth0: <BROADCAST> mtu 1450 state DOWN\n    inet 10.0.0.2/24 scope global eth0\n    inet 10.0.0.1/24 scope global secondary eth0\n3: flannel.1: <UP> mtu 1450\n    inet 10.244.1.0/32 scope global flannel.1\n",
            ),
            (
                "ip-route",
                "10.244.2.0/24 via 10.244.2.0 dev flannel.1\nblackhole 10.1.0.0/16 table 100\n",
            ),
            (
                "ip-rule",
                "0: from all lookup local\n100: from all fwmark 0x1 lookup 100\n32766: from all lookup main\n",
            ),
            ("ip-6-rule", ""),
            (
                "sysctl-a",
                "net.ipv4.ip_forward = 1\nnet.ipv4.conf.all.rp_filter = 1\nnet.ipv4.conf.eth0/5.rp_filter = 1\n",
            ),
        ]);
        let compared = first.formats().map(|format| format.to_string()).collect();
        let differences = svclab_dump::compare(&first, &second);
        DiffDocument::new("good", "bad", compared, differences)
    }

    #[test]
    fn render_text_looks_like_a_diff() {
        insta::assert_snapshot!(document().render_text(false));
    }

    #[test]
    fn render_text_colours_add_no_information() {
        let (plain, coloured) = (document().render_text(false), document().render_text(true));
        assert!(!plain.contains('\x1b') && coloured.contains('\x1b'));
        assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
    }

    #[test]
    fn document_json_matches_snapshot() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&document()).unwrap());
    }

    #[test]
    fn render_text_no_difference_lists_compared() {
        let document = |compared: &[&str]| {
            let compared = compared.iter().map(|&program| program.to_owned());
            DiffDocument::new("a", "b", compared.collect(), Vec::new())
        };
        let files = document(&["iptables-save", "ipset save"]);
        assert!(files.same);
        insta::assert_snapshot!(files.render_text(false), @"no difference in iptables-save and ipset save");
        let node = document(&["iptables-save", "ip addr", "ip route"]);
        insta::assert_snapshot!(node.render_text(false), @r"
        no difference in iptables-save, ip addr and ip route
        not looked at: tables of nftables (`nft list ruleset`), sets (`ipset save`), virtual servers of IPVS (`ipvsadm -Sn`), queueing disciplines (`tc qdisc`), traffic filters (`tc filter`), tracked connections (`conntrack -L`), IPsec policies (`ip xfrm policy`), BPF programs, rules of ebtables, rules of arptables and VLANs of bridges
        ");
    }

    #[test]
    fn render_change_moved_without_line_has_no_number() {
        let moved = |first, second| {
            let item = "10.0.0.1/24".to_owned();
            render_change(&DumpChange::Moved {
                item,
                first,
                second,
            })
            .1
        };
        assert_eq!(moved(2, 3), "~     2  10.0.0.1/24  (moved to line 3)");
        assert_eq!(moved(0, 0), "~        10.0.0.1/24  (moved)");
    }
}
