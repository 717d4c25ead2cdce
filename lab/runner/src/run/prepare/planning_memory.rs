//! Checks that this machine has the memory to plan a case.

use crate::kernel::host_memory;
use svclab_planner::cluster::{Problem, place};
use svclab_scenario::Case;
use svclab_scenario::objects::Objects;

/// Memory that planning needs for the rules of a kube-proxy about one service port or endpoint, in
/// KiB. Measured were 1.7 to 2.0 KiB in iptables and nftables mode, with the plan as text.
const ENTRY_KIB: u64 = 2;

/// Memory in KiB that every machine has. The memory of the machine is not read for less.
const SMALL_KIB: u64 = 64 << 10;

/// Number of objects that a kube-proxy writes rules for.
struct ProxyEntries {
    nodes: u64,
    ports: u64,
    endpoints: u64,
}

impl ProxyEntries {
    fn new(objects: &Objects) -> Self {
        let slices = objects.endpoint_slices.iter();
        let endpoints = slices.map(|slice| slice.value.endpoints.as_ref().map_or(0, Vec::len));
        let specs = objects.services.iter();
        let specs = specs.filter_map(|service| service.value.spec.as_ref());
        let ports = specs.map(|spec| spec.ports.as_ref().map_or(0, Vec::len));
        Self {
            nodes: to_u64(objects.nodes.len()),
            ports: to_u64(ports.sum()),
            endpoints: to_u64(endpoints.sum()),
        }
    }

    /// Returns the number of entries on all nodes.
    fn total(&self) -> u64 {
        let each = self.ports.saturating_add(self.endpoints);
        each.saturating_mul(self.nodes)
    }
}

/// Checks that planning the case needs no more than the memory of this machine.
///
/// # Errors
///
/// With the number of rules, the memory that they need and the memory of the machine.
pub(super) fn check_planning_memory(case: &Case) -> Result<(), Box<Problem>> {
    check_against(case, host_memory)
}

fn check_against(case: &Case, available_kib: impl FnOnce() -> u64) -> Result<(), Box<Problem>> {
    let later = case.steps.iter().map(|step| &step.objects);
    let stages: Vec<ProxyEntries> = std::iter::once(&case.objects)
        .chain(later)
        .map(|objects| ProxyEntries::new(objects))
        .collect();
    let total = stages
        .iter()
        .fold(0_u64, |sum, stage| sum.saturating_add(stage.total()));
    let needed_kib = total.saturating_mul(ENTRY_KIB);
    if needed_kib <= SMALL_KIB {
        return Ok(());
    }
    let available_kib = available_kib();
    if needed_kib <= available_kib {
        return Ok(());
    }
    let Some(largest) = stages.iter().max_by_key(|stage| stage.total()) else {
        return Ok(());
    };
    let in_stages = match stages.len() {
        1 => String::new(),
        count => format!(", in {count} stages"),
    };
    let message = format!(
        "planning the lab needs about {} MiB of memory, but this machine has {} MiB: the \
         kube-proxies of {} nodes have rules for {} service ports and {} endpoints each{in_stages}",
        needed_kib >> 10,
        available_kib >> 10,
        largest.nodes,
        largest.ports,
        largest.endpoints,
    );
    let help = "remove nodes or services that the lab does not need, or add memory to this machine";
    let problem = Problem::in_lab(place!["spec"], message).at_key();
    Err(Box::new(problem.with_help(help.to_owned())))
}

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::run::select_labs;

    #[test]
    fn planning_memory_beyond_machine_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let base = include_str!("../fields_tests/base.yaml");
        let nodes = (0..200).map(|number| {
            format!(
                "\n---\n{{apiVersion: v1, kind: Node, metadata: {{name: extra-{number}}}, \
                 status: {{addresses: [{{type: InternalIP, address: 172.16.{number}.1}}]}}}}"
            )
        });
        let ports: Vec<String> = (1..=500)
            .map(|port| format!("{{name: p{port}, port: {port}}}"))
            .collect();
        let service = format!(
            "\n---\n{{apiVersion: v1, kind: Service, metadata: {{name: wide}}, spec: {{clusterIP: \
             10.96.7.7, ports: [{}]}}}}",
            ports.join(", ")
        );
        let text: String = std::iter::once(base.to_owned())
            .chain(nodes)
            .chain([service])
            .collect();
        let file = directory.path().join("wide.yaml");
        std::fs::write(&file, text).unwrap();
        let names = [file.display().to_string()];
        let lab = select_labs(&names, directory.path()).unwrap().remove(0);
        let case = &lab.scenario.cases()[0];
        let problem = check_against(case, || 100 << 10).unwrap_err();
        insta::assert_snapshot!(problem.message, @"planning the lab needs about 202 MiB of memory, but this machine has 100 MiB: the kube-proxies of 203 nodes have rules for 503 service ports and 8 endpoints each");
        assert_eq!(check_against(case, || u64::MAX), Ok(()));
        let small = select_labs(
            &[Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("src/run/fields_tests/base.yaml")
                .display()
                .to_string()],
            directory.path(),
        );
        let small = small.unwrap().remove(0);
        let unread = || -> u64 { unreachable!("the memory is read only for large labs") };
        assert_eq!(check_against(&small.scenario.cases()[0], unread), Ok(()));
    }
}
