//! Determines which evidence must be recorded to check the expectations.

use crate::cluster::{Problem, place};
use svclab_diagnostic::suggest::did_you_mean;
use svclab_model::plan::{EvidenceRequest, Namespace};
use svclab_scenario::expectation::Expected;
use svclab_scenario::wire::InterfaceRef;

use crate::build::PlanInput;

/// Returns the evidence that the expectations of a row, and of its claims, require.
pub fn evidence_request(
    order: &PlanInput<'_>,
    namespaces: &[Namespace],
    problems: &mut Vec<Problem>,
) -> EvidenceRequest {
    let mut watch = EvidenceRequest::default();
    let claims = order
        .row
        .claims
        .iter()
        .filter_map(|claim| claim.says.as_ref());
    for expected in claims.chain([&order.row.expected]) {
        add_expected(order, expected, namespaces, &mut watch, problems);
    }
    watch
}

fn add_counter(watch: &mut EvidenceRequest, namespace: &str, counter: &str) {
    let named = watch.named_counters.entry(namespace.to_owned());
    named.or_default().insert(counter.to_owned());
}

fn add_expected(
    order: &PlanInput<'_>,
    expected: &Expected,
    namespaces: &[Namespace],
    watch: &mut EvidenceRequest,
    problems: &mut Vec<Problem>,
) {
    let find = |name: &str| {
        let mut clusters = order.stages.iter().map(|stage| stage.cluster);
        let netns = clusters.find_map(|cluster| cluster.source_namespace(name).ok());
        let netns = netns.unwrap_or_else(|| name.to_owned());
        namespaces.iter().find(|namespace| namespace.name == netns)
    };
    let path = || place!["spec", "expect", order.row_index];
    let unknown = |name: &str| {
        Problem::in_lab(
            path(),
            format!("an expectation refers to `{name}`, which is not in the lab"),
        )
        .with_help(did_you_mean(
            name,
            namespaces.iter().map(|namespace| namespace.name.as_str()),
        ))
    };
    let add_unique = |list: &mut Vec<String>, name: &str| {
        if !list.iter().any(|known| known == name) {
            list.push(name.to_owned());
        }
    };
    // Returns the namespace of an interface, and reports a missing interface.
    let namespace_of_interface = |tap: &InterfaceRef, problems: &mut Vec<Problem>| {
        let Some(namespace) = find(&tap.owner) else {
            problems.push(unknown(&tap.owner));
            return None;
        };
        let dev = &tap.interface;
        if dev != "lo" && !namespace.links.iter().any(|link| link.name == *dev) {
            let links: Vec<&str> = namespace
                .links
                .iter()
                .map(|link| link.name.as_str())
                .collect();
            problems.push(
                Problem::in_lab(
                    path(),
                    format!(
                        "an expectation refers to interface `{dev}`, which {} does not have",
                        namespace.name
                    ),
                )
                .with_help(
                    did_you_mean(dev, links.iter().copied())
                        .or_else(|| Some(format!("its interfaces are {}", links.join(", ")))),
                ),
            );
        }
        Some(namespace)
    };
    for wire in &expected.wire {
        if let Some(namespace) = namespace_of_interface(&wire.on, &mut *problems) {
            add_unique(&mut watch.packets, &namespace.name);
        }
    }
    for counter in &expected.counters {
        match find(&counter.on) {
            None => problems.push(unknown(&counter.on)),
            Some(namespace) => {
                add_unique(&mut watch.counters, &namespace.name);
                add_counter(watch, &namespace.name, &counter.counter);
            }
        }
    }
    for rule in &expected.rules {
        match find(&rule.on) {
            None => problems.push(unknown(&rule.on)),
            Some(namespace) => {
                add_unique(&mut watch.rules, &namespace.name);
                // Rules of native tables have no counters.
                if rule.table.contains(' ') {
                    add_unique(&mut watch.trace, &namespace.name);
                }
            }
        }
    }
    for chain in &expected.chains {
        match find(&chain.on) {
            None => problems.push(unknown(&chain.on)),
            Some(namespace) => add_unique(&mut watch.rules, &namespace.name),
        }
    }
    for set in &expected.sets {
        match find(&set.on) {
            None => problems.push(unknown(&set.on)),
            // Sets of nftables are read together with its rules.
            Some(namespace) if set.table.is_some() => add_unique(&mut watch.rules, &namespace.name),
            Some(namespace) => add_unique(&mut watch.sets, &namespace.name),
        }
    }
    for server in &expected.ipvs {
        match find(&server.on) {
            None => problems.push(unknown(&server.on)),
            Some(namespace) => add_unique(&mut watch.ipvs, &namespace.name),
        }
    }
    for link in &expected.links {
        if let Some(namespace) = namespace_of_interface(&link.on, &mut *problems) {
            add_unique(&mut watch.links, &namespace.name);
        }
    }
}
