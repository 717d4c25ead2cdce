//! Measures the time to generate the rules of a node for many services. Run by `cargo bench --bench
//! generate`; the target is 150 ms for 10,000 services of five endpoints each, in each mode, on one
//! core.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use svclab_rules::kube_proxy::{
    Family, KubeProxy, Mode, Objects, ipvs_rules, nftables_rules, rules,
};
use svclab_rules::objects::{EndpointSlice, Node, Service};

/// Numbers of services.
const SIZES: [usize; 3] = [1_000, 5_000, 10_000];

/// Number of endpoints of each service; every second endpoint is on the node.
const ENDPOINTS: usize = 5;

const VERSION: &str = "v1.30";

struct Cluster {
    nodes: Vec<Node>,
    services: Vec<Service>,
    slices: Vec<EndpointSlice>,
}

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

impl Cluster {
    fn new(size: usize) -> Self {
        let node = json!({
            "metadata": {"name": "node-a"},
            "spec": {"podCIDR": "10.0.0.0/8"},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.168.50.10"}]}
        });
        let service = |n: usize| {
            json!({
                "metadata": {"name": format!("service-{n}"), "namespace": "default"},
                "spec": {
                    "type": "ClusterIP",
                    "clusterIP": format!("172.{}.{}.{}", 16 + n / 65_536, n / 256 % 256, n % 256),
                    "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]
                }
            })
        };
        let endpoint = |n: usize, index: usize| {
            let n = n * ENDPOINTS + index;
            json!({
                "addresses": [format!("10.{}.{}.{}", n / 65_536, n / 256 % 256, n % 256)],
                "conditions": {"ready": true},
                "nodeName": if index.is_multiple_of(2) { "node-a" } else { "node-b" }
            })
        };
        let slice = |n: usize| {
            let endpoints: Vec<Value> = (0..ENDPOINTS).map(|at| endpoint(n, at)).collect();
            json!({
                "metadata": {
                    "name": format!("service-{n}-1"),
                    "namespace": "default",
                    "labels": {"kubernetes.io/service-name": format!("service-{n}")}
                },
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
                "endpoints": endpoints
            })
        };
        Self {
            nodes: vec![parse(node)],
            services: (0..size).map(|n| parse(service(n))).collect(),
            slices: (0..size).map(|n| parse(slice(n))).collect(),
        }
    }

    fn objects(&self) -> Objects<'_> {
        Objects {
            node: "node-a",
            nodes: &self.nodes,
            services: &self.services,
            endpoint_slices: &self.slices,
            service_cidrs: &[],
            interface_addresses: &[],
        }
    }
}

/// Generates the rules and renders them as programs read them. Returns the size of the result.
fn generate_rules(proxy: &KubeProxy, cluster: &Cluster) -> usize {
    if proxy.mode == Mode::Nftables {
        let table = nftables_rules(proxy, &cluster.objects(), Family::V4).expect("a table");
        table.to_string().len()
    } else if proxy.mode == Mode::Ipvs {
        let rules = ipvs_rules(proxy, &cluster.objects(), Family::V4).expect("rules");
        rules.script.to_string().len() + rules.sets.to_string().len() + rules.servers.len()
    } else {
        let rules = rules(proxy, &cluster.objects(), Family::V4).expect("rules");
        rules.script.to_string().len()
    }
}

fn measure(criterion: &mut Criterion) {
    for mode in [Mode::Iptables, Mode::Ipvs, Mode::Nftables] {
        let mut group = criterion.benchmark_group(format!("generate {mode}"));
        group
            .sample_size(10)
            .measurement_time(Duration::from_secs(5));
        for size in SIZES {
            let cluster = Cluster::new(size);
            let proxy = KubeProxy {
                mode,
                cluster_cidr: Some("10.0.0.0/8".parse().expect("a network")),
                ..KubeProxy::new(VERSION.parse().expect("a version"))
            };
            let id = BenchmarkId::from_parameter(format!("{size} services"));
            group.bench_function(id, |bencher| {
                bencher.iter_with_large_drop(|| {
                    generate_rules(black_box(&proxy), black_box(&cluster))
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, measure);
criterion_main!(benches);
