//! Adds examples to the help of each command.

use clap::Command;

/// Examples of commands whose help has no other examples.
const EXAMPLES: [(&str, [&str; 2]); 20] = [
    (
        "run",
        [
            "svclab run local-ingress --fail-fast",
            "svclab run 'local-ingress/policy=Local' --write junit=results/junit.xml",
        ],
    ),
    (
        "explain",
        [
            "svclab explain canal-stale-rule/stale=present,rpFilter=1,underlay=passes",
            "svclab explain my-lab.yaml --probe call --verbose",
        ],
    ),
    (
        "why",
        [
            "svclab why 'clb-hairpin/policy=Local,rpFilter=0'",
            "svclab why my-lab.yaml --dump node-1=node-1.tar.gz --report answer.html",
        ],
    ),
    (
        "plan",
        [
            "svclab plan canal-stale-rule/stale=present,rpFilter=1,underlay=passes",
            "svclab plan my-lab.yaml | less",
        ],
    ),
    (
        "graph",
        [
            "svclab graph canal-stale-rule/stale=present,rpFilter=1,underlay=passes > topology.svg",
            "svclab graph my-lab.yaml --format mermaid --probe call",
        ],
    ),
    (
        "up",
        [
            "svclab up canal-stale-rule/stale=present,rpFilter=1,underlay=passes",
            "svclab up my-lab.yaml --detach",
        ],
    ),
    ("ps", ["svclab ps", "svclab ps --format json"]),
    (
        "exec",
        [
            "svclab exec node-1 -- iptables -t nat -S",
            "svclab exec pod/default/client -- ping -c 1 10.244.1.10",
        ],
    ),
    (
        "shell",
        ["svclab shell node-1", "svclab shell pod/default/client"],
    ),
    (
        "probe",
        [
            "svclab probe pod/default/client service/default/web:80",
            "svclab probe laptop node-1:30080 --lab node-port",
        ],
    ),
    ("down", ["svclab down", "svclab down node-port"]),
    (
        "rules",
        [
            "svclab rules objects.yaml --kube-version v1.30 --node node-1",
            "svclab rules objects.yaml --kube-version v1.36 --proxy-mode nftables",
        ],
    ),
    (
        "claims",
        [
            "svclab claims",
            "svclab claims --from results.json --verbose",
        ],
    ),
    (
        "verify",
        [
            "svclab verify --kube-proxy ./kube-proxy",
            "svclab verify --kube-proxy ./kube-proxy local-ingress",
        ],
    ),
    (
        "bisect",
        [
            "svclab bisect --good canal-stale-rule/stale=removed,rpFilter=1,underlay=passes --bad canal-stale-rule/stale=present,rpFilter=1,underlay=passes",
            "svclab bisect --good good.tar.gz --bad bad.tar.gz --objects objects.yaml --probe pod/default/client,10.96.0.10:80",
        ],
    ),
    (
        "diff",
        [
            "svclab diff node-1.tar.gz node-2.tar.gz",
            "svclab diff before.iptables-save after.iptables-save --format json",
        ],
    ),
    (
        "replay",
        [
            "svclab replay node-1.tar.gz --objects objects.yaml --probe 'pod/default/client,10.96.0.10:80'",
            "svclab replay node-1=node-1.tar.gz --objects canal-stale-rule/stale=present,rpFilter=1,underlay=passes",
        ],
    ),
    (
        "collect-node",
        [
            "svclab collect-node | ssh root@node-1 sh -s -- -o - > node-1.tar.gz",
            "svclab collect-node > collect-node",
        ],
    ),
    (
        "redact",
        [
            "svclab redact objects.yaml --key redact.key",
            "svclab redact objects.yaml --key redact.key --output redacted",
        ],
    ),
    (
        "man",
        ["svclab man man1", "svclab man /usr/local/share/man/man1"],
    ),
];

/// Adds the examples to the help of the commands, before other text.
pub(super) fn with_examples(command: Command) -> Command {
    command.mut_subcommands(|command| {
        let mut all = EXAMPLES.into_iter();
        let Some((_, examples)) = all.find(|(name, _)| command.get_name() == *name) else {
            return command;
        };
        let rest = command.get_after_help().map(ToString::to_string);
        let rest = rest.map_or_else(String::new, |rest| format!("\n\n{rest}"));
        command.after_help(format!("Examples:\n  {}{rest}", examples.join("\n  ")))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::args::Arguments;
    use crate::embedded::EMBEDDED_LABS;
    use svclab_runner::run::{LabDirectory, select_labs};

    #[test]
    fn commands_have_two_valid_examples() {
        let command = with_examples(Arguments::command());
        for (name, _) in EXAMPLES {
            assert!(command.find_subcommand(name).is_some(), "{name}");
        }
        // Their only arguments are choices that the help lists.
        let obvious = ["doctor", "kernel", "schema", "completions"];
        let commands = command.get_subcommands();
        for command in commands.filter(|command| !obvious.contains(&command.get_name())) {
            let help = command.get_after_help().map(ToString::to_string);
            let examples = help
                .as_deref()
                .and_then(|help| help.split_once("Examples:\n"));
            let (_, examples) = examples.unwrap_or_else(|| panic!("{}", command.get_name()));
            let lines = examples.lines().take_while(|line| !line.is_empty());
            let lines = lines.filter(|line| line.contains("svclab "));
            assert!(lines.count() >= 2, "{}", command.get_name());
        }
        let mut errors = Vec::new();
        for example in EXAMPLES.iter().flat_map(|(_, examples)| examples) {
            let example = example.split(" | ").next().unwrap_or(example);
            let example = example.split(" > ").next().unwrap_or(example);
            let words = shlex::split(example).expect("words of a shell");
            let is_case = |word: &&String| {
                let parts = word.split_once('/');
                parts.is_some_and(|(lab, case)| !lab.contains('=') && case.contains('='))
            };
            for case in words.iter().filter(is_case) {
                let embedded = LabDirectory::Embedded(&EMBEDDED_LABS);
                if let Err(error) = select_labs(std::slice::from_ref(case), embedded) {
                    errors.push(format!("{example}: {error}"));
                }
            }
            let parsed = Arguments::command().try_get_matches_from(words);
            if let Err(error) = parsed {
                errors.push(format!("{example}: {error}"));
            }
        }
        assert_eq!(errors, Vec::<String>::new());
    }
}
