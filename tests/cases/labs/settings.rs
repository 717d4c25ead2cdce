//! Tests that a running lab has every sysctl of its plan, also those that are not set for each
//! interface separately.

use std::process::Command;

use libtest_mimic::{Failed, Trial};
use svclab_model::plan::{Namespace, Sysctl};
use svclab_runner::kernel::enter;
use svclab_runner::run::Prepared;
use svclab_test_support::programs::with_agent;

/// Cases with bridges, tunnels and sysctls in the lab document.
const CASES: [&str; 2] = [
    "canal-stale-rule/stale=present,rpFilter=1,underlay=drops",
    "local-ingress/policy=Local,clusterCIDR=set,version=v1.20,mode=iptables",
];

/// Returns one trial for each of the cases.
pub fn trials(cases: &[Prepared]) -> Vec<Trial> {
    CASES
        .iter()
        .map(|id| {
            let prepared = cases
                .iter()
                .find(|prepared| prepared.case.id == *id)
                .unwrap_or_else(|| panic!("no case {id}"))
                .clone();
            Trial::test(format!("settings/{id}"), move || check_sysctls(&prepared))
        })
        .collect()
}

/// Group IDs in the agent's user namespace differ from those here.
const GROUP_RANGE: &str = "net.ipv4.ping_group_range";

fn check_sysctls(prepared: &Prepared) -> Result<(), Failed> {
    let differences = with_agent(async |agent| {
        let session = agent.build(prepared.plan.clone()).await?;
        let differences: Vec<String> = prepared
            .plan
            .namespaces
            .iter()
            .flat_map(|namespace| {
                let enter = enter::enter_command(&session, &namespace.name);
                differences(
                    namespace,
                    &enter.expect("the agent is a process of this machine"),
                )
            })
            .collect();
        Ok(differences)
    })?;
    if differences.is_empty() {
        Ok(())
    } else {
        Err(differences.join("\n").into())
    }
}

/// Returns the sysctls of a namespace that differ from its plan. An optional sysctl may be missing
/// in the kernel.
fn differences(namespace: &Namespace, enter: &str) -> Vec<String> {
    let command = enter.replace("COMMAND", "cat");
    let mut words = command.split(' ');
    let sysctls: Vec<(&Sysctl, String)> = namespace
        .sysctls
        .iter()
        .filter(|setting| setting.key != GROUP_RANGE)
        .map(|setting| (setting, sysctl_path(&setting.key)))
        .collect();
    let mut cat = Command::new(words.next().expect("a program"));
    // `/proc/sys/net` shows the sysctls of the reading process's network namespace.
    let read = cat
        .args(words)
        .args(["-s", "--"])
        .args(sysctls.iter().map(|(_, path)| path))
        .output()
        .expect("nsenter can be started");
    let stderr = String::from_utf8_lossy(&read.stderr);
    let mut values = String::from_utf8_lossy(&read.stdout)
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .into_iter();
    let mut differences = Vec::new();
    for (setting, path) in sysctls {
        let found = if stderr.contains(&format!("{path}: No such file")) {
            setting.optional.then(|| setting.value.clone())
        } else {
            values.next()
        };
        if found.as_deref() != Some(&setting.value) {
            differences.push(format!("{}: {setting:?} is {found:?}", namespace.name));
        }
    }
    differences
}

fn sysctl_path(key: &str) -> String {
    let swapped = key.chars().map(|letter| match letter {
        '.' => '/',
        '/' => '.',
        other => other,
    });
    std::iter::once("/proc/sys/".to_owned())
        .chain(swapped.map(String::from))
        .collect()
}
