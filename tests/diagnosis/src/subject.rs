//! Calls of svclab that ask for the cause in a broken lab.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::args::Command;
use crate::lab::BrokenLab;

/// Broken lab about which the commands are asked.
pub(crate) struct Subject<'a> {
    pub(crate) name: &'a str,
    pub(crate) lab: &'a BrokenLab,
    /// Lab without faults and without a real kube-proxy.
    pub(crate) generated: &'a BrokenLab,
    pub(crate) failing: &'a [String],
    pub(crate) good: &'a BTreeMap<String, PathBuf>,
    pub(crate) bad: &'a BTreeMap<String, PathBuf>,
    /// Whether a fault is in objects or fields of the lab.
    pub(crate) in_objects: bool,
    /// Whether a real kube-proxy writes the rules.
    pub(crate) real_proxy: bool,
}

impl Subject<'_> {
    /// Returns the arguments of each call of a command.
    pub(crate) fn calls(&self, command: Command) -> Vec<Vec<String>> {
        let texts = |all: &[&str]| {
            all.iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        let dumps = || {
            self.bad
                .iter()
                .map(|(node, path)| format!("{node}={}", path.display()))
        };
        // The objects that an operator collects from the broken cluster.
        let objects = if self.in_objects {
            &self.lab.broken
        } else {
            &self.lab.healthy
        };
        let json = ["--format", "json"];
        match command {
            Command::Explain => vec![texts(&["explain", json[0], json[1], &self.lab.broken])],
            Command::Replay => {
                let mut call = texts(&["replay", json[0], json[1]]);
                call.extend(dumps());
                call.extend(texts(&["--objects", objects]));
                vec![call]
            }
            Command::Diff => self
                .pairs()
                .map(|(_, good, bad)| texts(&["diff", json[0], json[1], &good, &bad]))
                .collect(),
            Command::Bisect if self.is_bisected_by_dumps() => self
                .pairs()
                .map(|(node, good, bad)| {
                    texts(&[
                        "bisect",
                        json[0],
                        json[1],
                        "--case",
                        &self.generated.healthy,
                        "--node",
                        &node,
                        "--good",
                        &good,
                        "--bad",
                        &bad,
                    ])
                })
                .collect(),
            Command::Bisect => {
                vec![texts(&[
                    "bisect",
                    json[0],
                    json[1],
                    "--good",
                    &self.lab.healthy,
                    "--bad",
                    &self.lab.broken,
                ])]
            }
            Command::Why => vec![texts(&["why", json[0], json[1], &self.lab.broken])],
            Command::WhyDump => {
                let mut call = texts(&["why", json[0], json[1], objects]);
                call.extend(dumps().flat_map(|dump| ["--dump".to_owned(), dump]));
                vec![call]
            }
        }
    }

    /// Whether two dumps contain all faults. Cases with real kube-proxies cannot be compared.
    fn is_bisected_by_dumps(&self) -> bool {
        self.real_proxy || (!self.in_objects && self.bad.len() == 1)
    }

    /// Returns the good and the bad dump of each node.
    fn pairs(&self) -> impl Iterator<Item = (String, String, String)> {
        self.bad.iter().filter_map(|(node, bad)| {
            let good = self.good.get(node)?;
            Some((
                node.clone(),
                good.display().to_string(),
                bad.display().to_string(),
            ))
        })
    }
}
