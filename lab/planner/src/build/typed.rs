//! Builds the commands that run on nodes, from the `byHand` fields of a lab.

use crate::cluster::{Cluster, Node, Problem, place};
use svclab_model::plan::{CommandLimits, Typed};
use svclab_model::tools::iptables_program;

/// Returns the commands of all nodes, in the order of the nodes and of each node's list.
///
/// If svclab generates the rules of a node, its `byHand` rules are part of them. If a real
/// kube-proxy writes rules, a command adds the `byHand` rules afterwards.
pub fn typed(cluster: &Cluster, problems: &mut Vec<Problem>) -> Vec<Typed> {
    let mut all = Vec::new();
    for node in &cluster.nodes {
        let limits = limits(node);
        if node.writes_itself() && !node.by_hand.iptables.is_empty() {
            all.push(Typed {
                namespace: node.name.clone(),
                command: vec![
                    iptables_program(4, cluster.backend, "restore"),
                    "--noflush".to_owned(),
                ],
                input: batches(&node.by_hand.iptables),
                limits,
            });
        }
        for (at, line) in node.by_hand.commands.iter().enumerate() {
            match shlex::split(line).filter(|words| !words.is_empty()) {
                Some(command) => all.push(Typed {
                    namespace: node.name.clone(),
                    command,
                    input: String::new(),
                    limits,
                }),
                None => problems.push(no_command(node, at, line)),
            }
        }
    }
    all
}

/// Returns the limits of each command on a node.
fn limits(node: &Node) -> CommandLimits {
    let default = CommandLimits::default();
    let said = &node.by_hand;
    CommandLimits {
        time: said.time_limit.unwrap_or(default.time),
        output: said.output_limit.unwrap_or(default.output),
        processes: said.process_limit.unwrap_or(default.processes),
    }
}

fn no_command(node: &Node, at: usize, line: &str) -> Problem {
    Problem::in_lab(
        place!["spec", "nodes", &node.name, "byHand", "commands", at],
        format!("`{line}` is no command"),
    )
    .help("give a program and its arguments, with quotes that end".to_owned())
}

/// Returns the lines with `COMMIT` after each table.
fn batches(lines: &[String]) -> String {
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
    fn every_table_is_committed() {
        let lines = ["*nat", "-F KUBE-SERVICES", "*filter", "-F KUBE-FORWARD"];
        let once = "*nat\n-F KUBE-SERVICES\nCOMMIT\n*filter\n-F KUBE-FORWARD\nCOMMIT\n";
        assert_eq!(batches(&lines.map(str::to_owned)), once);
        let ended = ["*nat", "-F KUBE-SERVICES", "COMMIT"];
        assert_eq!(
            batches(&ended.map(str::to_owned)),
            "*nat\n-F KUBE-SERVICES\nCOMMIT\n"
        );
    }
}
