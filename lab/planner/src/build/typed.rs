//! What is typed on nodes by hand, as far as it is not among the rules already.

use crate::cluster::{Cluster, Node, Problem, place};
use svclab_model::plan::{CommandLimits, Typed};
use svclab_model::tools::iptables_program;

/// The commands of all nodes, in the nodes' order and each node's own.
///
/// Rules that are typed where svclab writes all others are written with them; where a
/// real kube-proxy writes, they come once it has written.
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

/// What each command on a node may take.
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

/// Lines as they were given, each table committed.
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
