//! Measures how fast svclab parses a dump of 200,000 rules and compares it with another. Run by
//! `cargo bench --bench dump`; the target is 250 ms for parsing on one core.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use svclab_dump::compare::iptables::{Order, compare};
use svclab_ruleset::iptables::IptablesRules;
use svclab_ruleset::text::Text;
use svclab_ruleset::text::problem::ProblemKind;

/// Number of rules in the dump.
const RULES: usize = 200_000;

/// Appends the eight rules that kube-proxy writes for a service with two endpoints.
fn append_service(text: &mut [String; 3], n: usize) {
    let [chains, list, rules] = text;
    let (a, b, c) = (n / 65_536, n / 256 % 256, n % 256);
    let name = format!("default/service-{n}:http");
    for chain in ["SVC", "SEP-A", "SEP-B"] {
        let _ = writeln!(chains, ":KUBE-{chain}{n:010} - [0:0]");
    }
    let _ = writeln!(
        list,
        "-A KUBE-SERVICES -d 10.{a}.{b}.{c}/32 -p tcp -m comment --comment \"{name} cluster IP\" -m tcp --dport 80 -j KUBE-SVC{n:010}"
    );
    let _ = writeln!(
        rules,
        "-A KUBE-SVC{n:010} ! -s 10.244.0.0/16 -d 10.{a}.{b}.{c}/32 -p tcp -m comment --comment \"{name} cluster IP\" -m tcp --dport 80 -j KUBE-MARK-MASQ"
    );
    for (endpoint, chance) in [
        (
            "A",
            " -m statistic --mode random --probability 0.50000000000",
        ),
        ("B", ""),
    ] {
        let _ = writeln!(
            rules,
            "-A KUBE-SVC{n:010} -m comment --comment \"{name} -> 10.244.1.{c}:8080\"{chance} -j KUBE-SEP-{endpoint}{n:010}\n\
             -A KUBE-SEP-{endpoint}{n:010} -s 10.244.1.{c}/32 -m comment --comment \"{name}\" -j KUBE-MARK-MASQ\n\
             -A KUBE-SEP-{endpoint}{n:010} -p tcp -m comment --comment \"{name}\" -m tcp -j DNAT --to-destination 10.244.1.{c}:8080"
        );
    }
}

fn dump(order: impl Iterator<Item = usize>) -> String {
    let mut text = [String::new(), String::new(), String::new()];
    for n in order {
        append_service(&mut text, n);
    }
    let [chains, list, rules] = text;
    format!("*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n{chains}{list}{rules}COMMIT\n")
}

fn measure(criterion: &mut Criterion) {
    let services = RULES / 8;
    let text = dump(0..services);
    let rules = text.lines().filter(|line| line.starts_with("-A")).count();
    assert_eq!(rules, RULES);
    // Copied outside the measurement: the text of a real file would be moved.
    let whole = Text::new(text.clone());
    let mut group = criterion.benchmark_group("dump");
    group
        .sample_size(20)
        .measurement_time(Duration::from_secs(8));
    group.bench_function("read 200,000 rules", |bencher| {
        bencher.iter(|| {
            let mut problems = Vec::new();
            let dump = IptablesRules::parse_with_problems(black_box(&whole), &mut problems);
            let odd = problems
                .iter()
                .find(|p| matches!(p.kind, ProblemKind::UnknownLine(_)));
            assert!(odd.is_none());
            dump
        });
    });
    let first = IptablesRules::parse(&text).expect("a dump");
    let second = IptablesRules::parse(&dump((0..services).rev())).expect("a dump");
    group.bench_function(
        "compare 200,000 rules, services in another order",
        |bencher| {
            bencher.iter(|| {
                let differences = compare(&first, &second, Order::ServicesInAnyOrder);
                assert!(differences.is_empty());
            });
        },
    );
    group.finish();
}

criterion_group!(benches, measure);
criterion_main!(benches);
