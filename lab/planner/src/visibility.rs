//! Finds the manual commands whose changes the state of a node, as programs print it, does not
//! contain.

use crate::command_words::{file_name, is_short_for, split_iproute};
use svclab_model::plan::NodeCommand;

/// Programs whose changes the state of a node contains.
const SHOWN: [&str; 7] = [
    "iptables",
    "ip6tables",
    "ipset",
    "ipvsadm",
    "nft",
    "sysctl",
    "bridge",
];

/// Objects of `bridge` that the state of a node contains. Labs have no VLANs of bridge ports.
const SHOWN_OF_BRIDGE: [&str; 2] = ["link", "fdb"];

/// Programs whose changes the state of a node does not contain: queueing disciplines, tracked
/// connections and offloads of interfaces.
const HIDDEN: [&str; 3] = ["tc", "conntrack", "ethtool"];

/// Shells.
const SHELLS: [&str; 4] = ["sh", "ash", "bash", "dash"];

/// Objects of `ip` that the state of a node does not contain, each with its shortest form.
const HIDDEN_OF_IP: [(&str, &str); 2] = [("xfrm", "x"), ("nexthop", "nex")];

/// Setting of a bridge that labs do not have.
const VLAN_FILTERING: &str = "vlan_filtering";

/// Which changes of a command the state of a node contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// All, as far as is known.
    Shown,
    /// None.
    Hidden,
    /// Some.
    Mixed,
}

impl Visibility {
    /// Returns the visibility of the changes of a command, or of the text of a shell.
    #[must_use]
    pub fn new(command: &NodeCommand) -> Self {
        let (mut shows, mut hides) = (false, false);
        for words in simple_commands(command) {
            match words.split_first() {
                Some((program, arguments)) if is_hidden(program, arguments) => hides = true,
                Some((program, _)) => shows |= is_shown(program),
                None => {}
            }
        }
        match (shows, hides) {
            (_, false) => Self::Shown,
            (false, true) => Self::Hidden,
            (true, true) => Self::Mixed,
        }
    }
}

/// Whether the evidence of a case lacks changes of a command. Unlike the state of a node, it contains
/// queueing disciplines, VLAN filtering of bridges and conntrack entries.
#[must_use]
pub fn lacks_evidence(command: &NodeCommand) -> bool {
    simple_commands(command).iter().any(|words| {
        let Some((program, arguments)) = words.split_first() else {
            return false;
        };
        let is_in_evidence = match *program {
            "conntrack" => true,
            "ip" => arguments.contains(&VLAN_FILTERING),
            "tc" => {
                split_iproute(arguments).is_none_or(|(object, ..)| is_short_for(object, "qdisc"))
            }
            _ => false,
        };
        is_hidden(program, arguments) && !is_in_evidence
    })
}

/// Returns the words of a command, or of each command in the text of a shell. The first word is the
/// name of the program.
fn simple_commands(command: &NodeCommand) -> Vec<Vec<&str>> {
    /// Words of a shell before a command.
    const BEFORE: [&str; 9] = [
        "do", "then", "else", "if", "while", "until", "!", "exec", "sudo",
    ];
    let program = command.command.first().map(|word| file_name(word));
    let commands: Vec<Vec<&str>> = if program.is_some_and(|name| SHELLS.contains(&name)) {
        let texts = command.command.iter().skip(1).chain([&command.input]);
        let parts = texts.flat_map(|text| text.split([';', '|', '&', '(', ')', '`', '\n']));
        let words = parts.map(|part| part.split_whitespace());
        words
            .map(|words| words.skip_while(|word| BEFORE.contains(word)).collect())
            .collect()
    } else {
        vec![command.command.iter().map(String::as_str).collect()]
    };
    commands
        .into_iter()
        .filter_map(|mut words| {
            let first = words.first_mut()?;
            *first = file_name(first);
            Some(words)
        })
        .collect()
}

fn is_hidden(program: &str, arguments: &[&str]) -> bool {
    match program {
        "ip" => split_iproute(arguments).is_some_and(|(object, ..)| {
            let mut hidden = HIDDEN_OF_IP.iter();
            let is_object = hidden
                .any(|(full, shortest)| is_short_for(object, full) && object.starts_with(shortest));
            is_object || arguments.contains(&VLAN_FILTERING)
        }),
        "bridge" => split_iproute(arguments).is_some_and(|(object, ..)| {
            let mut shown = SHOWN_OF_BRIDGE.iter();
            !shown.any(|full| is_short_for(object, full))
        }),
        "ipvsadm" => arguments.contains(&"--set"),
        program => HIDDEN.contains(&program),
    }
}

fn is_shown(program: &str) -> bool {
    // `iptables-legacy` is a variant of iptables.
    let name = program.split('-').next().unwrap_or(program);
    program == "ip" || SHOWN.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::plan::CommandLimits;

    fn command(words: &[&str]) -> NodeCommand {
        NodeCommand {
            namespace: "node-1".to_owned(),
            command: words.iter().map(|word| (*word).to_owned()).collect(),
            input: String::new(),
            limits: CommandLimits::default(),
        }
    }

    #[test]
    fn evidence_lacks_policies_and_filters() {
        for (line, expected) in [
            ("ip xfrm policy flush", true),
            ("tc filter add dev eth0 ingress matchall action drop", true),
            ("ethtool -K eth0 tx off", true),
            ("tc qdisc add dev eth0 root netem loss 100%", false),
            ("conntrack -D", false),
            ("ip link set br type bridge vlan_filtering 1", false),
            ("bridge vlan del dev a vid 1", true),
            ("ip link set lo up", false),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(lacks_evidence(&command(&words)), expected, "{line}");
        }
    }

    #[test]
    fn visibility_of_commands_depends_on_their_programs() {
        use Visibility::{Hidden, Mixed, Shown};
        for (words, expected) in [
            (&["ip", "route", "del", "10.0.0.0/8"][..], Shown),
            (&["/sbin/iptables-legacy", "-F"], Shown),
            (&["bridge", "l", "set", "dev", "a", "isolated", "on"], Shown),
            (&["bridge", "fdb", "flush", "dev", "a"], Shown),
            (&["sh", "-c", "bridge vlan del dev a vid 1"], Hidden),
            (
                &[
                    "ip",
                    "link",
                    "set",
                    "br",
                    "type",
                    "bridge",
                    "vlan_filtering",
                    "1",
                ],
                Hidden,
            ),
            (&["tc", "qdisc", "add", "dev", "eth0", "clsact"], Hidden),
            (&["ip", "-6", "xfrm", "policy", "flush"], Hidden),
            (&["ip", "-f", "inet6", "x", "p", "flush"], Hidden),
            (&["ip", "n", "flush", "dev", "eth0"], Shown),
            (&["ip", "route", "add", "10.0.0.0/8", "nexthop"], Shown),
            (
                &["sh", "-c", "for p in 1 2; do conntrack -I -p udp; done"],
                Hidden,
            ),
            (
                &["sh", "-c", "ip link set a up; tc qdisc del dev a root"],
                Mixed,
            ),
            (&["ipvsadm", "--set", "1", "1", "1"], Hidden),
            (
                &["iptables", "-A", "FORWARD", "-m", "conntrack", "-j", "DROP"],
                Shown,
            ),
        ] {
            assert_eq!(Visibility::new(&command(words)), expected, "{words:?}");
        }
    }
}
