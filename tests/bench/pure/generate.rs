//! Measures the time to generate the rules of a node for many services. Run by `cargo bench --bench
//! generate`; the target is 150 ms for 10,000 services of five endpoints each, in each mode, on one
//! core.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use svclab_rules::kube_proxy::{Family, KubeProxy, Mode, ipvs_rules, nftables_rules, rules};
use svclab_test_support::generated::cluster::Cluster;

/// Numbers of services.
const SIZES: [usize; 3] = [1_000, 5_000, 10_000];

/// Number of endpoints of each service; every second endpoint is on the node.
const ENDPOINTS: usize = 5;

const VERSION: &str = "v1.30";

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
            let cluster = Cluster::new(size, ENDPOINTS);
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
