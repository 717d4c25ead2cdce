//! Builds the commands that run on nodes, from the `byHand` fields of a lab.

use crate::cluster::{Cluster, Node, Problem, place};
use svclab_model::plan::{CommandLimits, NodeCommand};
use svclab_model::tools::iptables_program;

/// Returns the commands of all nodes, in the order of the nodes and of each node's list.
///
/// If svclab generates the rules of a node, its `byHand` rules are part of them. If a real
/// kube-proxy writes rules, a command adds the `byHand` rules afterwards.
pub fn node_commands(cluster: &Cluster, problems: &mut Vec<Problem>) -> Vec<NodeCommand> {
    let mut commands = Vec::new();
    for node in &cluster.nodes {
        let limits = command_limits(node);
        if node.has_real_kube_proxy() && !node.by_hand.iptables.is_empty() {
            commands.push(NodeCommand {
                namespace: node.name.clone(),
                command: vec![
                    iptables_program(4, cluster.backend, "restore"),
                    "--noflush".to_owned(),
                ],
                input: commit_tables(&node.by_hand.iptables),
                limits,
            });
        }
        for (index, line) in node.by_hand.commands.iter().enumerate() {
            match shlex::split(line).filter(|words| !words.is_empty()) {
                Some(command)
                    if command[0] != "nft"
                        && let Some(operator) = find_shell_operator(line) =>
                {
                    problems.push(operator_problem(node, index, operator));
                }
                Some(command) => commands.push(NodeCommand {
                    namespace: node.name.clone(),
                    command,
                    input: String::new(),
                    limits,
                }),
                None => problems.push(command_problem(node, index, line)),
            }
        }
    }
    commands
}

/// Returns the limits of each command on a node.
fn command_limits(node: &Node) -> CommandLimits {
    let default = CommandLimits::default();
    let by_hand = &node.by_hand;
    CommandLimits {
        max_time: by_hand.time_limit.unwrap_or(default.max_time),
        max_output: by_hand.output_limit.unwrap_or(default.max_output),
        max_processes: by_hand.process_limit.unwrap_or(default.max_processes),
    }
}

fn command_problem(node: &Node, index: usize, line: &str) -> Problem {
    Problem::in_lab(
        place!["spec", "nodes", &node.name, "byHand", "commands", index],
        format!("`{line}` is not a command"),
    )
    .with_help("write a program and its arguments, with closed quotes".to_owned())
}

/// Returns the first part of a command that only a shell interprets: an unquoted `>`, `|`, `;`, `&` or
/// a command substitution. `nft` has these characters in its own syntax, and reports others.
fn find_shell_operator(line: &str) -> Option<&str> {
    const OPERATORS: [char; 6] = ['>', '<', '|', ';', '&', '`'];
    let mut quote = None;
    let mut characters = line.char_indices();
    while let Some((index, character)) = characters.next() {
        match (quote, character) {
            (None | Some('"'), '\\') => {
                characters.next();
            }
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            (None, '$') if line[index..].starts_with("$(") => return Some("$("),
            (None, _) if OPERATORS.contains(&character) => {
                let rest = &line[index..];
                let end = rest.find(|next| !OPERATORS.contains(&next));
                return Some(&rest[..end.unwrap_or(rest.len())]);
            }
            _ => {}
        }
    }
    None
}

fn operator_problem(node: &Node, index: usize, operator: &str) -> Problem {
    Problem::in_lab(
        place!["spec", "nodes", &node.name, "byHand", "commands", index],
        format!("no shell runs the command, so `{operator}` would be an argument"),
    )
    .with_help("write `sh -c '…'` for a shell, or quote the argument".to_owned())
}

/// Returns the lines with `COMMIT` after each table.
fn commit_tables(lines: &[String]) -> String {
    let mut text = String::new();
    let mut open = false;
    for line in lines.iter().map(|line| line.trim()) {
        if line.is_empty() || line == "COMMIT" {
            continue;
        }
        if line.starts_with('*') {
            if open {
                text.push_str("COMMIT\n");
            }
            open = true;
        }
        text.push_str(line);
        text.push('\n');
    }
    if open {
        text.push_str("COMMIT\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_shell_operator_quoted_text_is_no_operator() {
        for (line, expected) in [
            ("echo 0 > /proc/sys/net/ipv4/ip_forward", Some(">")),
            ("echo 0 >>/tmp/x", Some(">>")),
            ("ip link 2>&1", Some(">&")),
            ("ip link || true", Some("||")),
            ("ip link; ip route", Some(";")),
            ("ip link && ip route", Some("&&")),
            ("sleep 1 &", Some("&")),
            ("ip link set $(hostname) up", Some("$(")),
            ("ip link set `hostname` up", Some("`")),
            ("sh -c 'echo 0 > /proc/sys/net/ipv4/ip_forward'", None),
            (r#"sh -c "a; b" 'c'"#, None),
            (r#"sh -c "a \" ; b""#, None),
            (r"tc filter add \; x", None),
            ("sysctl -w net.ipv4.ip_forward=0", None),
        ] {
            assert_eq!(find_shell_operator(line), expected, "{line}");
        }
    }

    #[test]
    fn commit_tables_adds_commit_once_per_table() {
        let lines = ["*nat", "-F KUBE-SERVICES", "*filter", "-F KUBE-FORWARD"];
        let once = "*nat\n-F KUBE-SERVICES\nCOMMIT\n*filter\n-F KUBE-FORWARD\nCOMMIT\n";
        assert_eq!(commit_tables(&lines.map(str::to_owned)), once);
        let ended = ["*nat", "-F KUBE-SERVICES", "COMMIT"];
        assert_eq!(
            commit_tables(&ended.map(str::to_owned)),
            "*nat\n-F KUBE-SERVICES\nCOMMIT\n"
        );
    }
}
