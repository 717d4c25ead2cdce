//! Builds the real kube-proxies that run instead of generated rules.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use crate::cluster::{Cluster, Problem, place};
use svclab_apiserver::{ObjectChange, Resource, Store, StoreEvent};
use svclab_model::plan::{API_ADDRESS, RealProxy, SyncTarget};
use svclab_rules::kube_proxy::history::{CONNTRACK_RECONCILED, ENDPOINTS_OBJECTS};
use svclab_rules::kube_proxy::{Version, config_file, flags, needs_config_file};
use svclab_rules::objects::ProxyLabels;

/// Default time limit for the rules of a kube-proxy. Without KVM, a sync in a guest lasts some
/// seconds.
const DEFAULT_SYNC_TIMEOUT: Duration = Duration::from_mins(2);

/// Returns the real kube-proxies of all nodes, and the objects that their API server serves.
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
                        "`args` has no effect without `binary`".to_owned(),
                    )
                    .with_help(
                        "set `binary` to the path of a kube-proxy, or remove `args`".to_owned(),
                    ),
                );
            }
            if proxy.timeout.is_some() {
                problems.push(
                    Problem::in_lab(
                        place!["spec", "kubeProxy", "timeout"],
                        "`timeout` has no effect without `binary`".to_owned(),
                    )
                    .with_help(
                        "set `binary` to the path of a kube-proxy, or remove `timeout`".to_owned(),
                    ),
                );
            }
            continue;
        };
        if !proxy.args.is_empty() && needs_config_file(proxy) {
            problems.push(
                Problem::in_lab(
                    place!["spec", "kubeProxy", "args"],
                    "kube-proxy ignores `args` when it has a configuration file, and only the file \
                     sets `masqueradeBit`, and up to v1.30 `masqueradeAll`, of nftables mode"
                        .to_owned(),
                )
                .with_help("remove `args` or these fields".to_owned()),
            );
        }
        if !proxy.bind_load_balancer_ips {
            // A kube-proxy detects the iptables backend and kernel of its node by itself.
            problems.push(
                Problem::in_lab(
                    place!["spec", "kubeProxy", "bindLoadBalancerIPs"],
                    "kube-proxy has no flag for `bindLoadBalancerIPs`".to_owned(),
                )
                .with_help("remove it where `binary` is set: the program detects it".to_owned()),
            );
        }
        proxies.push(RealProxy {
            namespace: node.name.clone(),
            program: program.to_string_lossy().into_owned(),
            arguments: flags(proxy, &node.name, API_ADDRESS),
            config: config_file(proxy),
            mode: proxy.mode,
            backend: cluster.backend,
            sync_target: initial_sync_target(cluster, proxy.version),
            sync_timeout: proxy.timeout.unwrap_or(DEFAULT_SYNC_TIMEOUT),
        });
    }
    (proxies, cluster.api_objects.clone())
}

/// Returns, for each node with a real kube-proxy, the minimum number of changes that the kube-proxy
/// receives when the objects of its API server change.
pub fn sync_targets_of_change(
    cluster: &Cluster,
    before: &[Value],
    after: &[Value],
) -> BTreeMap<String, SyncTarget> {
    let mut store = Store::new();
    // Objects that the API server rejects are reported when they are loaded.
    let mut changes: Vec<&StoreEvent> = Vec::new();
    if store.replace(before.to_vec()).is_ok() {
        let version_before = store.version();
        let _ = store.replace(after.to_vec());
        changes.extend(store.changes_since(version_before).into_iter().flatten());
    }
    let count_changes = |resource: Resource| {
        let matching = changes.iter().filter(|change| change.resource == resource);
        to_u64(matching.filter(|change| is_received_by_all(change)).count())
    };
    let real = cluster.nodes.iter().filter_map(|node| {
        let proxy = node.kube_proxy.as_ref()?;
        proxy.binary.as_ref()?;
        let endpoints = if proxy.version.has(&ENDPOINTS_OBJECTS) {
            Resource::Endpoints
        } else {
            Resource::EndpointSlices
        };
        let target = SyncTarget {
            services: count_changes(Resource::Services),
            endpoints: count_changes(endpoints),
        };
        Some((node.name.clone(), target))
    });
    real.collect()
}

/// Returns the node of a kube-proxy that runs `conntrack` when endpoints change; `None` if there is
/// none.
pub fn node_running_conntrack(cluster: &Cluster) -> Option<String> {
    let mut nodes = cluster.nodes.iter();
    let node = nodes.find(|node| {
        let proxy = node.kube_proxy.as_ref();
        proxy.is_some_and(|proxy| {
            proxy.binary.is_some() && !proxy.version.has(&CONNTRACK_RECONCILED)
        })
    })?;
    Some(node.name.clone())
}

/// Whether every kube-proxy receives a change.
fn is_received_by_all(change: &StoreEvent) -> bool {
    let is_watched = |object: &Value| {
        let has_label = |label: &&str| object["metadata"]["labels"].get(label).is_some();
        !UNWATCHED_LABELS.iter().any(has_label) && object["spec"]["clusterIP"] != "None"
    };
    match &change.change {
        ObjectChange::Added(object) | ObjectChange::Deleted(object) => is_watched(object),
        ObjectChange::Modified { before, after } => is_watched(before) && is_watched(after),
    }
}

/// Labels of objects that some versions of kube-proxy do not watch.
const UNWATCHED_LABELS: [&str; 2] = [
    "service.kubernetes.io/service-proxy-name",
    "service.kubernetes.io/headless",
];

/// Returns the number of objects that every kube-proxy of the version watches: services with an
/// address and the endpoints of services, except objects with one of these labels.
fn initial_sync_target(cluster: &Cluster, version: Version) -> SyncTarget {
    let is_watched = |labels: ProxyLabels| !labels.other_proxy && !labels.headless;
    let services = cluster.services.iter();
    let services = services.filter(|service| is_watched(service.labels) && !service.is_headless);
    let slices = cluster
        .slices
        .iter()
        .filter(|slice| is_watched(slice.labels));
    let slices = slices.filter_map(|slice| Some((&slice.namespace, slice.service.as_ref()?)));
    let slices: Vec<_> = slices.collect();
    let endpoints = if version.has(&ENDPOINTS_OBJECTS) {
        slices.into_iter().collect::<BTreeSet<_>>().len()
    } else {
        slices.len()
    };
    SyncTarget {
        services: to_u64(services.count()),
        endpoints: to_u64(endpoints),
    }
}

fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
