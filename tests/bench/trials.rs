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
use svclab_runner::kernel::guest::{Cache, Guest, Wanted};
use svclab_runner::kernel::{Agent, Host, Session};
use tokio::runtime::Runtime;

/// Number of measurements of each trial.
const SAMPLES: usize = 40;

/// Number of measurements of each trial by script.
const SCRIPTED: usize = 5;

/// Time for which trials are counted.
const COUNTED: Duration = Duration::from_secs(4);

/// Path of the measured program.
const AGENT: &str = env!("CARGO_BIN_EXE_svclab-agent");

const FRESH: &str = "fresh";
const FRESH_RATE: &str = "fresh, a second";
const RULE: &str = "a rule changed";
const ENTRY: &str = "a set's entry changed";

/// Median times of the same trials by a shell script.
struct Scripted {
    up: Duration,
    down: Duration,
    rule: Duration,
    entry: Duration,
}

impl Scripted {
    fn measure(backend: Backend, plan: &Plan) -> Self {
        let mut place = script::Place::open();
        let median = |mut took: Vec<Duration>| {
            took.sort();
            took[took.len() / 2]
        };
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for _ in 0..SCRIPTED {
            up.push(place.stand(backend, plan));
            down.push(place.down());
            place.settle();
        }
        place.stand(backend, plan);
        place.script("set");
        let word = backend.word();
        let mut alternate = |there: &str, back: &str| {
            let both = (0..SCRIPTED).flat_map(|_| [there.to_owned(), back.to_owned()]);
            median(both.map(|what| place.script(&what)).collect())
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

    fn of(&self, what: &str) -> Duration {
        match what {
            RULE => self.rule,
            ENTRY => self.entry,
            _ => self.up,
        }
    }

    /// Returns trials a second; a script runs them one after another.
    fn rate(&self, what: &str) -> f64 {
        let each = if what == FRESH_RATE {
            self.up + self.down
        } else {
            self.rule
        };
        1.0 / each.as_secs_f64()
    }
}

/// Machine on which trials run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Host,
    Guest,
}

/// Part of the running lab that a trial changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
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
    for place in [Place::Host, Place::Guest] {
        for backend in [Backend::Legacy, Backend::Nft] {
            let agents: Vec<Agent> = (0..cores()).map(|_| start(&runtime, place)).collect();
            let bare = plan::plan(backend);
            let scripted = (place == Place::Host).then(|| Scripted::measure(backend, &bare));
            let plan = with_set(bare);
            let row = |what: &str, took: Vec<Duration>, aim: u64| {
                let mut cells = timed(place, backend, what, took, aim);
                let by_script = scripted.as_ref().map(|scripted| scripted.of(what));
                cells.push(right(by_script.map_or_else(String::new, milliseconds)));
                cells
            };
            let fresh = runtime.block_on(fresh(&agents[0], &plan));
            table.add_row(row(FRESH, fresh, fresh_aim(place, backend)));
            for (what, name) in [(What::Rule, RULE), (What::Entry, ENTRY)] {
                let took = runtime.block_on(standing(&agents[0], &plan, what));
                table.add_row(row(name, took, change_aim(place, backend)));
            }
            let counted = [
                (
                    FRESH_RATE,
                    runtime.block_on(count_fresh(&agents, &plan)),
                    (place == Place::Host).then_some(60.0),
                ),
                (
                    "standing, a second",
                    runtime.block_on(count_standing(&agents, &plan)),
                    match (place, backend) {
                        (Place::Host, Backend::Legacy) => Some(300.0),
                        (Place::Guest, _) => Some(100.0),
                        (Place::Host, Backend::Nft) => None,
                    },
                ),
            ];
            for (name, rate, aim) in counted {
                let mut cells = rated(place, backend, name, rate, aim);
                let by_script = scripted.as_ref().map(|scripted| scripted.rate(name));
                let by_script = by_script.map(|rate| format!("{rate:.1}"));
                cells.push(right(by_script.unwrap_or_default()));
                table.add_row(cells);
            }
        }
    }
    println!("{table}");
    println!("{}", watched::table(&runtime));
    println!("{}", many::table(&runtime, &start(&runtime, Place::Host)));
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

const fn fresh_aim(place: Place, backend: Backend) -> u64 {
    match (place, backend) {
        (Place::Host, Backend::Legacy) => 20,
        (Place::Host, Backend::Nft) => 70,
        (Place::Guest, _) => 100,
    }
}

const fn change_aim(place: Place, backend: Backend) -> u64 {
    match (place, backend) {
        (Place::Host, Backend::Legacy) => 5,
        (Place::Guest, Backend::Legacy) => 10,
        (_, Backend::Nft) => 20,
    }
}

fn start(runtime: &Runtime, place: Place) -> Agent {
    runtime.block_on(async {
        match place {
            Place::Host => Host::with_agent(PathBuf::from(AGENT)).start().await,
            Place::Guest => {
                let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
                let cache = Cache::open(directory).expect("a cache");
                let guest = Guest::with_agent(cache, &Wanted::Newest, PathBuf::from(AGENT)).await;
                guest.expect("a kernel").start().await
            }
        }
        .expect("an agent")
    })
}

/// Returns the plan with a set on the first node.
fn with_set(mut plan: Plan) -> Plan {
    node(&mut plan)
        .ipset
        .push_str("create TRIED hash:ip family inet\n");
    plan
}

fn node(plan: &mut Plan) -> &mut svclab_model::plan::Namespace {
    let mut namespaces = plan.namespaces.iter_mut();
    namespaces
        .find(|namespace| namespace.name == "node-1")
        .expect("a node")
}

/// Returns the plan after one change.
fn changed(plan: &Plan, what: What) -> Plan {
    let mut plan = plan.clone();
    let node = node(&mut plan);
    match what {
        What::Entry => node.ipset.push_str("add TRIED 198.51.100.7\n"),
        What::Rule => {
            let rules = &mut node.iptables.as_mut().expect("rules").v4;
            let nat = rules.find("*nat").expect("a table");
            let end = nat + rules[nat..].find("COMMIT").expect("its end");
            rules.insert_str(end, "-A POSTROUTING -d 198.51.100.7 -j RETURN\n");
        }
    }
    plan
}

async fn verdict(session: &mut Session) {
    let evidence = session.probe().await.expect("the lab is probed");
    let verdicts: Vec<Verdict> = evidence.attempts.iter().map(|a| a.verdict).collect();
    assert_eq!(verdicts, [Verdict::Connected]);
}

/// Measures fresh trials from plan to verdict, without the removal of the lab.
async fn fresh(agent: &Agent, plan: &Plan) -> Vec<Duration> {
    let mut took = Vec::new();
    for _ in 0..SAMPLES {
        let plan = plan.clone();
        let begun = Instant::now();
        let mut session = agent.build(plan).await.expect("the lab is built");
        verdict(&mut session).await;
        took.push(begun.elapsed());
        session.end().await.expect("the lab goes");
    }
    took
}

/// Returns the delta to the changed plan and the delta back.
fn there_and_back(plan: &Plan, what: What) -> [Delta; 2] {
    let other = changed(plan, what);
    [
        svclab_planner::delta::between(plan, &other).expect("a change reaches it"),
        svclab_planner::delta::between(&other, plan).expect("a change reaches it"),
    ]
}

async fn standing(agent: &Agent, plan: &Plan, what: What) -> Vec<Duration> {
    let deltas = there_and_back(plan, what);
    let mut session = agent
        .build_standing(plan.clone())
        .await
        .expect("the lab is built");
    let mut took = Vec::new();
    for delta in deltas.iter().cycle().take(SAMPLES) {
        let delta = delta.clone();
        let begun = Instant::now();
        trial(&mut session, delta).await;
        took.push(begun.elapsed());
    }
    took
}

async fn trial(session: &mut Session, delta: Delta) {
    session.change(delta).await.expect("the lab changes");
    session.forget().await.expect("the lab forgets");
    verdict(session).await;
}

/// Returns the number of labs a second that are built, probed and removed. Each agent runs one lab
/// after another.
async fn count_fresh(agents: &[Agent], plan: &Plan) -> f64 {
    let begun = Instant::now();
    let each = agents.iter().map(|agent| async {
        let mut done = 0_u32;
        while begun.elapsed() < COUNTED {
            let mut session = agent.build(plan.clone()).await.expect("the lab is built");
            verdict(&mut session).await;
            session.end().await.expect("the lab goes");
            done += 1;
        }
        done
    });
    let done: u32 = join_all(each).await.iter().sum();
    f64::from(done) / begun.elapsed().as_secs_f64()
}

async fn count_standing(agents: &[Agent], plan: &Plan) -> f64 {
    let deltas = there_and_back(plan, What::Rule);
    let sessions = agents
        .iter()
        .map(|agent| agent.build_standing(plan.clone()));
    let sessions = join_all(sessions).await;
    let begun = Instant::now();
    let each = sessions.into_iter().map(|session| async {
        let mut session = session.expect("the lab is built");
        let mut done = 0_u32;
        for delta in deltas.iter().cycle() {
            if begun.elapsed() >= COUNTED {
                break;
            }
            trial(&mut session, delta.clone()).await;
            done += 1;
        }
        done
    });
    let done: u32 = join_all(each).await.iter().sum();
    f64::from(done) / begun.elapsed().as_secs_f64()
}

fn timed(
    place: Place,
    backend: Backend,
    what: &str,
    mut took: Vec<Duration>,
    aim: u64,
) -> Vec<Cell> {
    took.sort();
    let median = took[took.len() / 2];
    let met = median <= Duration::from_millis(aim);
    let milliseconds = |time: Duration| right(milliseconds(time));
    vec![
        Cell::new(format!("{place:?}").to_lowercase()),
        Cell::new(backend.word()),
        Cell::new(what),
        milliseconds(median),
        milliseconds(took[0]),
        right(format!("{aim} ms")),
        Cell::new(word(met)),
    ]
}

fn rated(place: Place, backend: Backend, what: &str, rate: f64, aim: Option<f64>) -> Vec<Cell> {
    vec![
        Cell::new(format!("{place:?}").to_lowercase()),
        Cell::new(backend.word()),
        Cell::new(what),
        right(format!("{rate:.0}")),
        Cell::new(""),
        right(aim.map_or_else(String::new, |aim| format!("{aim:.0}"))),
        Cell::new(aim.map_or("", |aim| word(rate >= aim))),
    ]
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

const fn word(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}
