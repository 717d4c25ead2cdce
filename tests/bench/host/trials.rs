//! Measures trials on this host and in a guest, each beside its target. A fresh trial builds a lab
//! for one connection. A change trial changes a rule or a set entry of a running lab, resets its
//! connection state and probes it again.
//!
//! Also measures trials a second on two cores, the cost of packet and drop evidence, and hundreds
//! of namespaces beside plain `unshare` calls and `ip -batch`. Trials on this host are compared
//! with a shell script of `ip`, `iptables`, `ipset`, `conntrack` and `nc`, in the same run.
//!
//! Run by `scripts/bench` on an idle machine; needs root. Of several measurements, the tables show
//! the median and the best. `cargo bench --bench trials -- watched` measures only the cost of
//! evidence.

mod many;
mod plan;
mod script;
mod watched;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use comfy_table::{Cell, CellAlignment, Table, presets};
use futures_util::future::join_all;
use svclab_model::evidence::Verdict;
use svclab_model::plan::{Backend, Delta, Plan};
use svclab_ruleset::iptables::script::{IptablesScript, Table as RuleTable};
use svclab_runner::kernel::guest::{Cache, Guest, KernelRequest};
use svclab_runner::kernel::{Agent, Host, Session};
use svclab_test_support::append_text;
use svclab_test_support::evidence::single_stage;
use tokio::runtime::Runtime;

/// Number of measurements of each trial.
const SAMPLES: usize = 40;

/// Number of measurements of each trial by script.
const SCRIPT_SAMPLES: usize = 5;

/// Time for which trials are counted.
const COUNTING_TIME: Duration = Duration::from_secs(4);

/// Path of the measured program.
const AGENT: &str = env!("CARGO_BIN_EXE_svclab-agent");

const FRESH: &str = "fresh";
const FRESH_RATE: &str = "fresh, a second";
const RULE: &str = "a rule changed";
const ENTRY: &str = "a set's entry changed";

/// Median times of the same trials by a shell script.
struct ScriptTimes {
    up: Duration,
    down: Duration,
    rule: Duration,
    entry: Duration,
}

impl ScriptTimes {
    fn measure(backend: Backend, plan: &Plan) -> Self {
        let mut place = script::ScriptHost::new();
        let median = |mut took: Vec<Duration>| {
            took.sort();
            took[took.len() / 2]
        };
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for _ in 0..SCRIPT_SAMPLES {
            up.push(place.up(backend, plan));
            down.push(place.down());
            place.settle();
        }
        place.up(backend, plan);
        place.run_script("set");
        let word = backend.name();
        let mut alternate = |forward: &str, back: &str| {
            let commands = (0..SCRIPT_SAMPLES).flat_map(|_| [forward.to_owned(), back.to_owned()]);
            median(commands.map(|what| place.run_script(&what)).collect())
        };
        let rule = alternate(&format!("rule {word} -A"), &format!("rule {word} -D"));
        let entry = alternate("entry add", "entry del");
        Self {
            up: median(up),
            down: median(down),
            rule,
            entry,
        }
    }

    fn time_of(&self, trial: &str) -> Duration {
        match trial {
            RULE => self.rule,
            ENTRY => self.entry,
            _ => self.up,
        }
    }

    /// Returns trials a second; a script runs them one after another.
    fn rate(&self, trial: &str) -> f64 {
        let each = if trial == FRESH_RATE {
            self.up + self.down
        } else {
            self.rule
        };
        1.0 / each.as_secs_f64()
    }
}

/// Machine on which trials run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Machine {
    Host,
    Guest,
}

/// Part of the running lab that a trial changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChangedObject {
    Rule,
    Entry,
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    if std::env::args().any(|argument| argument == "watched") {
        println!("{}", watched::table(&runtime));
        return;
    }
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "where",
        "iptables",
        "a trial",
        "median",
        "best",
        "aim",
        "",
        "by script",
    ]);
    for place in [Machine::Host, Machine::Guest] {
        for backend in [Backend::Legacy, Backend::Nft] {
            let agents: Vec<Agent> = (0..cores()).map(|_| start(&runtime, place)).collect();
            let bare = plan::plan(backend);
            let scripted = (place == Machine::Host).then(|| ScriptTimes::measure(backend, &bare));
            let plan = with_set(bare);
            let row = |label: &str, took: Vec<Duration>, aim: u64| {
                let mut cells = time_row(place, backend, label, took, aim);
                let by_script = scripted.as_ref().map(|scripted| scripted.time_of(label));
                cells.push(right_aligned(
                    by_script.map_or_else(String::new, milliseconds),
                ));
                cells
            };
            let fresh = runtime.block_on(measure_fresh(&agents[0], &plan));
            table.add_row(row(FRESH, fresh, fresh_target(place, backend)));
            for (what, name) in [(ChangedObject::Rule, RULE), (ChangedObject::Entry, ENTRY)] {
                let took = runtime.block_on(measure_changes(&agents[0], &plan, what));
                table.add_row(row(name, took, change_target(place, backend)));
            }
            let counted = [
                (
                    FRESH_RATE,
                    runtime.block_on(count_fresh(&agents, &plan)),
                    (place == Machine::Host).then_some(60.0),
                ),
                (
                    "standing, a second",
                    runtime.block_on(count_changes(&agents, &plan)),
                    match (place, backend) {
                        (Machine::Host, Backend::Legacy) => Some(300.0),
                        (Machine::Guest, _) => Some(100.0),
                        (Machine::Host, Backend::Nft) => None,
                    },
                ),
            ];
            for (name, rate, aim) in counted {
                let mut cells = rate_row(place, backend, name, rate, aim);
                let by_script = scripted.as_ref().map(|scripted| scripted.rate(name));
                let by_script = by_script.map(|rate| format!("{rate:.1}"));
                cells.push(right_aligned(by_script.unwrap_or_default()));
                table.add_row(cells);
            }
        }
    }
    println!("{table}");
    println!("{}", watched::table(&runtime));
    println!("{}", many::table(&runtime, &start(&runtime, Machine::Host)));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "{} cores, load {}",
        cores(),
        load.split(' ').next().unwrap_or_default()
    );
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

const fn fresh_target(place: Machine, backend: Backend) -> u64 {
    match (place, backend) {
        (Machine::Host, Backend::Legacy) => 20,
        (Machine::Host, Backend::Nft) => 70,
        (Machine::Guest, _) => 100,
    }
}

const fn change_target(place: Machine, backend: Backend) -> u64 {
    match (place, backend) {
        (Machine::Host, Backend::Legacy) => 5,
        (Machine::Guest, Backend::Legacy) => 10,
        (_, Backend::Nft) => 20,
    }
}

fn start(runtime: &Runtime, place: Machine) -> Agent {
    runtime.block_on(async {
        match place {
            Machine::Host => Host::with_agent(PathBuf::from(AGENT)).start().await,
            Machine::Guest => {
                let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
                let cache = Cache::open(directory).expect("a cache");
                let guest =
                    Guest::with_agent(cache, &KernelRequest::Newest, PathBuf::from(AGENT)).await;
                guest.expect("a kernel").start().await
            }
        }
        .expect("an agent")
    })
}

/// Returns the plan with a set on the first node.
fn with_set(mut plan: Plan) -> Plan {
    let node = node(&mut plan);
    append_text(&mut node.ipset, "create TRIED hash:ip family inet\n");
    plan
}

fn node(plan: &mut Plan) -> &mut svclab_model::plan::Namespace {
    let mut namespaces = plan.namespaces.iter_mut();
    namespaces
        .find(|namespace| namespace.name == "node-1")
        .expect("a node")
}

/// Returns the plan after one change.
fn changed_plan(plan: &Plan, object: ChangedObject) -> Plan {
    let mut plan = plan.clone();
    let node = node(&mut plan);
    match object {
        ChangedObject::Entry => append_text(&mut node.ipset, "add TRIED 198.51.100.7\n"),
        ChangedObject::Rule => {
            let rules = &mut node.iptables.as_mut().expect("rules").v4;
            let add = |script: &mut IptablesScript| {
                let nat = script.table_mut(RuleTable::Nat);
                nat.append("POSTROUTING", "-d 198.51.100.7 -j RETURN");
            };
            rules.edit(add).expect("the planner renders the rules");
        }
    }
    plan
}

async fn probe_connected(session: &mut Session) {
    let evidence = single_stage(session.probe().await.expect("the lab is probed"));
    let verdicts: Vec<Verdict> = evidence.attempts.iter().map(|a| a.verdict).collect();
    assert_eq!(verdicts, [Verdict::Connected]);
}

/// Measures fresh trials from plan to verdict, without the removal of the lab.
async fn measure_fresh(agent: &Agent, plan: &Plan) -> Vec<Duration> {
    let mut took = Vec::new();
    for _ in 0..SAMPLES {
        let plan = plan.clone();
        let begun = Instant::now();
        let mut session = agent.build(plan).await.expect("the lab is built");
        probe_connected(&mut session).await;
        took.push(begun.elapsed());
        session.remove().await.expect("the lab is removed");
    }
    took
}

/// Returns the delta to the changed plan and the delta back.
fn deltas_both_ways(plan: &Plan, object: ChangedObject) -> [Delta; 2] {
    let target = changed_plan(plan, object);
    [
        svclab_planner::delta::diff(plan, &target).expect("a delta exists"),
        svclab_planner::delta::diff(&target, plan).expect("a delta exists"),
    ]
}

async fn measure_changes(agent: &Agent, plan: &Plan, object: ChangedObject) -> Vec<Duration> {
    let deltas = deltas_both_ways(plan, object);
    let mut session = agent
        .build_changeable(plan.clone())
        .await
        .expect("the lab is built");
    let mut took = Vec::new();
    for delta in deltas.iter().cycle().take(SAMPLES) {
        let delta = delta.clone();
        let begun = Instant::now();
        run_change_trial(&mut session, delta).await;
        took.push(begun.elapsed());
    }
    took
}

async fn run_change_trial(session: &mut Session, delta: Delta) {
    session.change(delta).await.expect("the lab changes");
    session
        .reset_connections()
        .await
        .expect("the connection state is reset");
    probe_connected(session).await;
}

/// Returns the number of labs a second that are built, probed and removed. Each agent runs one lab
/// after another.
async fn count_fresh(agents: &[Agent], plan: &Plan) -> f64 {
    let begun = Instant::now();
    let each = agents.iter().map(|agent| async {
        let mut done = 0_u32;
        while begun.elapsed() < COUNTING_TIME {
            let mut session = agent.build(plan.clone()).await.expect("the lab is built");
            probe_connected(&mut session).await;
            session.remove().await.expect("the lab is removed");
            done += 1;
        }
        done
    });
    let done: u32 = join_all(each).await.iter().sum();
    f64::from(done) / begun.elapsed().as_secs_f64()
}

async fn count_changes(agents: &[Agent], plan: &Plan) -> f64 {
    let deltas = deltas_both_ways(plan, ChangedObject::Rule);
    let sessions = agents
        .iter()
        .map(|agent| agent.build_changeable(plan.clone()));
    let sessions = join_all(sessions).await;
    let begun = Instant::now();
    let each = sessions.into_iter().map(|session| async {
        let mut session = session.expect("the lab is built");
        let mut done = 0_u32;
        for delta in deltas.iter().cycle() {
            if begun.elapsed() >= COUNTING_TIME {
                break;
            }
            run_change_trial(&mut session, delta.clone()).await;
            done += 1;
        }
        done
    });
    let done: u32 = join_all(each).await.iter().sum();
    f64::from(done) / begun.elapsed().as_secs_f64()
}

fn time_row(
    place: Machine,
    backend: Backend,
    what: &str,
    mut took: Vec<Duration>,
    aim: u64,
) -> Vec<Cell> {
    took.sort();
    let median = took[took.len() / 2];
    let met = median <= Duration::from_millis(aim);
    let milliseconds = |time: Duration| right_aligned(milliseconds(time));
    vec![
        Cell::new(format!("{place:?}").to_lowercase()),
        Cell::new(backend.name()),
        Cell::new(what),
        milliseconds(median),
        milliseconds(took[0]),
        right_aligned(format!("{aim} ms")),
        Cell::new(target_label(met)),
    ]
}

fn rate_row(
    place: Machine,
    backend: Backend,
    trial: &str,
    rate: f64,
    aim: Option<f64>,
) -> Vec<Cell> {
    vec![
        Cell::new(format!("{place:?}").to_lowercase()),
        Cell::new(backend.name()),
        Cell::new(trial),
        right_aligned(format!("{rate:.0}")),
        Cell::new(""),
        right_aligned(aim.map_or_else(String::new, |aim| format!("{aim:.0}"))),
        Cell::new(aim.map_or("", |aim| target_label(rate >= aim))),
    ]
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

const fn target_label(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

fn right_aligned(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}
