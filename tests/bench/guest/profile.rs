//! Prints where the time of a case goes: on this host or in a guest, by phase and by program.
//!
//! Run by `scripts/bench profile LAB/CASE [--kernel KERNEL] [--everything]`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use comfy_table::{Cell, CellAlignment, Table, presets};
use svclab_model::plan::EvidenceRequest;
use svclab_model::protocol::profile::{Cost, Profile};
use svclab_runner::kernel::guest::{Cache, Guest, KernelRequest};
use svclab_runner::kernel::{Agent, BuildOptions, Host};
use svclab_runner::run::{prepare, select_labs};

/// Path of the measured program.
const AGENT: &str = env!("CARGO_BIN_EXE_svclab-agent");

/// Number of measured runs, after one unmeasured run.
const RUNS: usize = 15;

const USAGE: &str = "usage: scripts/bench profile LAB/CASE [--kernel KERNEL] [--everything]";

/// Costs of one run. `phases` begins with the phases of the front end.
type Run = Vec<(String, Cost)>;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|word| word != "--bench");
    let (mut case, mut kernel, mut records_everything) = (None, None, false);
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "--kernel" => kernel = arguments.next(),
            "--everything" => records_everything = true,
            _ if case.is_none() && !word.starts_with('-') => case = Some(word),
            _ => exit_with_usage(),
        }
    }
    let Some(case) = case else { exit_with_usage() };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let agent = start(kernel.as_deref()).await;
        let mut runs = Vec::new();
        for _ in 0..=RUNS {
            runs.push(run(&agent, &case, records_everything).await);
        }
        runs.remove(0);
        println!("{case}, Linux {}", agent.environment().kernel);
        println!("{}", table(&runs));
    });
}

fn exit_with_usage() -> ! {
    eprintln!("{USAGE}");
    std::process::exit(2)
}

async fn start(kernel: Option<&str>) -> Agent {
    let Some(kernel) = kernel else {
        return Host::with_agent(PathBuf::from(AGENT))
            .start()
            .await
            .expect("an agent");
    };
    let wanted = KernelRequest::Series(kernel.to_owned());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let cache = Cache::open(target.join("guests")).expect("a cache");
    let guest = Guest::with_agent(cache, &wanted, PathBuf::from(AGENT)).await;
    let agent = guest.expect("a kernel").start().await;
    agent.expect("a guest starts")
}

/// Runs the case once, from its lab file to its verdict.
async fn run(agent: &Agent, name: &str, records_everything: bool) -> Run {
    let mut costs = Run::new();
    let whole = Instant::now();
    let mut planning = Instant::now();
    let chosen =
        select_labs(&[name.to_owned()], &svclab_test_support::topologies()).expect("a lab");
    let case = &chosen[0].scenario.cases()[chosen[0].cases[0]];
    let mut prepared = prepare(&chosen[0], case, Duration::from_secs(3)).expect("a plan");
    if records_everything {
        prepared.plan.evidence = EvidenceRequest::everything(&prepared.plan);
    }
    costs.push(("plan (front end)".to_owned(), lap(&mut planning)));
    let plan = prepared.plan.clone();
    let options = BuildOptions {
        is_profiled: true,
        ..BuildOptions::default()
    };
    let mut requests = Instant::now();
    let mut session = agent.build_with(plan, options).await.expect("a lab");
    let evidence = session.probe().await.expect("evidence");
    let requested = lap(&mut requests);
    let profile = session.take_profile().await.expect("a profile");
    let mut judging = Instant::now();
    let judge = prepared.judge().expect("the case can be judged");
    assert!(judge.judge(&evidence).holds(), "the case fails");
    let judged = lap(&mut judging);
    let mut removing = Instant::now();
    session.remove().await.expect("the lab is removed");
    let removed = lap(&mut removing);
    costs.extend(agent_costs(&profile, requested.wall));
    costs.push(("judge (front end)".to_owned(), judged));
    costs.push(("removal".to_owned(), removed));
    costs.push((
        "everything".to_owned(),
        Cost {
            count: 1,
            wall: whole.elapsed(),
            ..Cost::default()
        },
    ));
    let programs = profile.programs.into_iter();
    costs.extend(programs.map(|(program, cost)| (format!("  {program}"), cost)));
    costs
}

/// Returns the costs of the agent's phases, and the rest of the time that its requests took.
fn agent_costs(profile: &Profile, requested: Duration) -> Run {
    let phases = profile.phases.iter();
    let mut costs: Run = phases
        .map(|(phase, cost)| (format!("{phase:?}"), *cost))
        .collect();
    let measured = costs.iter().map(|(_, cost)| cost.wall).sum();
    let rest = Cost {
        count: 2,
        wall: requested.saturating_sub(measured),
        ..Cost::default()
    };
    costs.push(("transfer and the rest".to_owned(), rest));
    costs
}

/// Returns the time since the last lap.
fn lap(start: &mut Instant) -> Cost {
    let wall = start.elapsed();
    *start = Instant::now();
    Cost {
        count: 1,
        wall,
        ..Cost::default()
    }
}

/// Renders the medians of all runs.
fn table(runs: &[Run]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "phase or program",
        "times",
        "median",
        "best",
        "user",
        "kernel",
    ]);
    for (index, (name, first)) in runs[0].iter().enumerate() {
        let costs: Vec<Cost> = runs
            .iter()
            .filter_map(|run| {
                let same = |(other, _): &&(String, Cost)| other == name;
                run.get(index)
                    .filter(same)
                    .or_else(|| run.iter().find(same))
            })
            .map(|(_, cost)| *cost)
            .collect();
        let cell = |value: Duration| {
            Cell::new(format!("{:.2} ms", value.as_secs_f64() * 1000.0))
                .set_alignment(CellAlignment::Right)
        };
        table.add_row([
            Cell::new(name),
            Cell::new(first.count).set_alignment(CellAlignment::Right),
            cell(median(&costs, |cost| cost.wall)),
            cell(costs.iter().map(|cost| cost.wall).min().unwrap_or_default()),
            cell(median(&costs, |cost| cost.user)),
            cell(median(&costs, |cost| cost.kernel)),
        ]);
    }
    table
}

fn median(costs: &[Cost], part: impl Fn(&Cost) -> Duration) -> Duration {
    let mut values: Vec<Duration> = costs.iter().map(part).collect();
    values.sort_unstable();
    values[values.len() / 2]
}
