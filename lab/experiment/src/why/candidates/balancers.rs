//! Finds properties of load balancers that may be the cause.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Failures;
use crate::why::change::ProposedChange;
use svclab_scenario::lab::BalancerTarget;

/// Returns the changes of the load balancers that packets were sent to or came from.
pub(super) fn balancer_changes(failures: &Failures<'_>) -> Vec<ProposedChange> {
    let flows = failures.hops().flat_map(|hop| [hop.before, hop.after]);
    let met: BTreeSet<IpAddr> = flows
        .flat_map(|flow| [flow.source.ip(), flow.destination.ip()])
        .collect();
    let mut changes = Vec::new();
    for (name, spec) in &failures.case.spec.load_balancers.by_name {
        let mut balancers = failures.cluster.balancers.iter();
        let found = balancers.find(|balancer| balancer.name == *name);
        if !found.is_some_and(|own| own.addresses.iter().any(|ip| met.contains(ip))) {
            continue;
        }
        let balancer = || name.clone();
        changes.extend([
            if spec.keep_source {
                ProposedChange::UseOwnSource {
                    balancer: balancer(),
                }
            } else {
                ProposedChange::KeepSource {
                    balancer: balancer(),
                }
            },
            match spec.target {
                BalancerTarget::NodePort => ProposedChange::ForwardToPods {
                    balancer: balancer(),
                },
                BalancerTarget::Pods => ProposedChange::ForwardToNodePorts {
                    balancer: balancer(),
                },
            },
            ProposedChange::SkipOwnSource {
                balancer: balancer(),
            },
            ProposedChange::AddHealthCheck {
                balancer: balancer(),
            },
        ]);
        if spec.security_group.is_some() {
            changes.push(ProposedChange::RemoveSecurityGroup {
                balancer: balancer(),
            });
        }
        let backends = spec.backends.as_ref();
        for node in failures.case.objects.nodes.iter().map(|node| &node.name) {
            let is_backend = backends.is_none_or(|backends| backends.contains(node));
            let (balancer, node) = (balancer(), node.clone());
            changes.push(if is_backend {
                ProposedChange::RemoveBackend { balancer, node }
            } else {
                ProposedChange::AddBackend { balancer, node }
            });
        }
    }
    changes
}
