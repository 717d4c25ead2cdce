//! Real kube-proxies in place of generated rules.

use serde_json::Value;

use crate::cluster::{Cluster, Problem, place};
use crate::plan::{API, RealProxy};
use crate::rules::kube_proxy::flags;

/// Those of the cluster's nodes, and the objects that they are told of.
pub fn real_proxies(
    cluster: &Cluster,
    problems: &mut Vec<Problem>,
) -> (Vec<RealProxy>, Vec<Value>) {
    let mut proxies = Vec::new();
    for node in &cluster.nodes {
        let Some(proxy) = &node.kube_proxy else {
            continue;
        };
        let Some(program) = &proxy.binary else {
            if !proxy.args.is_empty() {
                problems.push(
                    Problem::in_lab(
                        place!["spec", "kubeProxy", "args"],
                        "there is no program that could be told so".to_owned(),
                    )
                    .help("give `binary` its path, or leave `args` out".to_owned()),
                );
            }
            continue;
        };
        if !proxy.bind_load_balancer_ips {
            // Of the node's iptables and kernel it finds out by itself.
            problems.push(
                Problem::in_lab(
                    place!["spec", "kubeProxy", "bindLoadBalancerIPs"],
                    "no flag tells a kube-proxy of `bindLoadBalancerIPs`".to_owned(),
                )
                .help("leave it out where `binary` is given: the program knows".to_owned()),
            );
        }
        proxies.push(RealProxy {
            namespace: node.name.clone(),
            program: program.to_string_lossy().into_owned(),
            arguments: flags(proxy, &node.name, API),
            mode: proxy.mode,
            backend: cluster.backend,
        });
    }
    if proxies.is_empty() {
        return (proxies, Vec::new());
    }
    let nodes = cluster.nodes.iter().map(|node| value(&node.object));
    let services = cluster.services.iter().map(value);
    let slices = cluster.slices.iter().map(value);
    (proxies, nodes.chain(services).chain(slices).collect())
}

/// An object as the API has it; what was read from YAML can be written as JSON.
fn value<T: serde::Serialize>(object: &T) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
