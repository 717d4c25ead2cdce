//! Checks that no bridge needs more ports than a bridge of Linux can have.

use super::problem::{Problem, place};
use super::subnets::Subnet;
use super::{Node, Pod};
use svclab_scenario::reference::{DocumentRef, ObjectKind};

/// Maximum number of ports of a bridge: `BR_MAX_PORTS` less port 0, which no interface has (Linux
/// v6.12, `net/bridge/br_private.h`, and `find_portno` in `net/bridge/br_if.c`).
const MAX_PORTS: usize = 1023;

/// Reports nodes with too many pods on their bridge, and subnets with too many machines.
pub(super) fn check_bridge_ports(
    nodes: &[Node],
    pods: &[Pod],
    routes_pods: bool,
    subnets: &[Subnet],
    problems: &mut Vec<Problem>,
) {
    let mut pods_on = vec![0_usize; nodes.len()];
    for pod in pods.iter().filter(|pod| !pod.host_network && !routes_pods) {
        if let Some(count) = pods_on.get_mut(pod.node) {
            *count += 1;
        }
    }
    for (node, count) in nodes.iter().zip(pods_on) {
        if count > MAX_PORTS {
            let message = format!(
                "node `{}` has {count} pods, but its bridge can have at most {MAX_PORTS} ports",
                node.name
            );
            let document = DocumentRef::object(ObjectKind::Node, "", &node.name);
            problems.push(
                Problem::new(document, place!["metadata", "name"], message).with_help(
                    "use more nodes, or `calico: {}`, which routes each pod instead".to_owned(),
                ),
            );
        }
    }
    for subnet in subnets {
        let count = subnet.members.len();
        if count > MAX_PORTS {
            let message = format!(
                "the subnet {} has {count} nodes and hosts, but a bridge can have at most \
                 {MAX_PORTS} ports",
                subnet.network
            );
            problems.push(
                Problem::in_lab(place!["spec", "fabric"], message)
                    .with_help("distribute the nodes over several subnets".to_owned()),
            );
        }
    }
}
