//! Measures how long `bisect` needs to find the culprit among a thousand differences of two
//! kube-proxy v1.30 nodes. Each node has a thousand services and legacy rules and runs on this
//! host; the target is 5 s. `cargo bench --bench bisect -- N` plants N culprits of each kind
//! (default 3).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use svclab_experiment::bisect::{Task, Unexamined, find, parallel_labs};
use svclab_runner::kernel::Host;
use svclab_test_support::planted::{Culprit, Random, generate_pair, lab};
use svclab_test_support::programs::agent;

/// Target for the time to find a culprit.
const TARGET_TIME: Duration = Duration::from_secs(5);

fn main() {
    let mut arguments = std::env::args().filter_map(|argument| argument.parse::<u64>().ok());
    let each = arguments.next().unwrap_or(3);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "culprit",
        "found",
        "differences",
        "trials",
        "median",
        "longest",
        "aim",
        "",
    ]);
    let lab = lab();
    for culprit in Culprit::ALL {
        let (mut took, mut trials, mut differences, mut right) = (Vec::new(), 0, 0, 0);
        for seed in 0..each {
            let mut planted = generate_pair(&lab, culprit, &mut Random::new(seed));
            let task = Task {
                assumed: Vec::new(),
                unexamined: Unexamined::default(),
                good: planted.good,
                bad: planted.bad,
                good_name: "good".to_owned(),
                bad_name: "bad".to_owned(),
                base: None,
                probe: None,
                draws: BTreeMap::new(),
            };
            let begun = Instant::now();
            let found = runtime.block_on(async {
                let agent = Host::with_agent(agent());
                let agent = agent.start().await.expect("an agent");
                find(&task, &agent, parallel_labs(&task, u64::MAX), &mut |_| {})
                    .await
                    .expect("an answer")
            });
            took.push(begun.elapsed());
            trials = trials.max(found.trials.len());
            differences = differences.max(found.finding.differences);
            let breaks = found.finding.breaks.iter().flatten();
            let mut named: Vec<String> = breaks
                .filter_map(|difference| difference.bad.clone().or(difference.good.clone()))
                .collect();
            named.sort();
            planted.culprits.sort();
            assert_eq!(culprit.size(), planted.culprits.len());
            right += u64::from(named == planted.culprits);
        }
        took.sort();
        let longest = took.last().copied().unwrap_or_default();
        let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
        table.add_row([
            format!("{culprit:?}"),
            format!("{right} of {each}"),
            differences.to_string(),
            trials.to_string(),
            seconds(took.get(took.len() / 2).copied().unwrap_or_default()),
            seconds(longest),
            seconds(TARGET_TIME),
            if longest <= TARGET_TIME && right == each {
                "met"
            } else {
                "missed"
            }
            .to_owned(),
        ]);
    }
    println!("{table}");
}
