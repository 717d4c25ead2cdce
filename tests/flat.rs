//! Labs, one after the other, in one agent of one process: what each takes is
//! given back. The figures are printed.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

#[path = "shared/full.rs"]
mod full;
#[path = "labs/stage.rs"]
mod stage;

/// One that connects at once, in a cluster of a few nodes.
const CASE: &str = "canal-stale-rule/stale=removed,rpFilter=1,underlay=drops";

/// After how many it is measured what they take: by then whatever is made once
/// has been made.
const WARM: usize = 20;

/// By how many KiB memory may differ: what an allocator keeps is not the same
/// after each lab. A lab of this kind that is not given back is some 300 of them,
/// and there are as many as labs.
const SLACK: u64 = 4096;

/// What a process holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holds {
    descriptors: usize,
    threads: usize,
    /// Network namespaces that its descriptors lead to.
    namespaces: usize,
    /// Memory that is its own, in KiB.
    memory: u64,
}

impl fmt::Display for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} descriptors, {} threads, {} namespaces, {} KiB",
            self.descriptors, self.threads, self.namespaces, self.memory
        )
    }
}

impl Holds {
    fn of(process: u32) -> Self {
        let directory = Path::new("/proc").join(process.to_string());
        let list = |name: &str| fs::read_dir(directory.join(name)).expect("a process");
        let descriptors: Vec<_> = list("fd")
            .flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .collect();
        let namespaces: BTreeSet<_> = descriptors
            .iter()
            .filter(|leads_to| leads_to.to_string_lossy().starts_with("net:["))
            .collect();
        let status = fs::read_to_string(directory.join("status")).expect("a process");
        let memory = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))
            .and_then(|rest| rest.split_whitespace().next())
            .and_then(|number| number.parse().ok());
        Self {
            descriptors: descriptors.len(),
            threads: list("task").count(),
            namespaces: namespaces.len(),
            memory: memory.expect("a size"),
        }
    }

    fn is_as_flat_as(&self, other: &Self) -> bool {
        let steady = |holds: &Self| (holds.descriptors, holds.threads, holds.namespaces);
        steady(self) == steady(other) && self.memory.abs_diff(other.memory) <= SLACK
    }
}

fn main() -> ExitCode {
    let labs = full::ordinary_or_full(60, 1000);
    let trial = Trial::test(format!("{labs} labs in a row are as one"), move || {
        in_a_row(labs)
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn in_a_row(labs: usize) -> Result<(), Failed> {
    let cases = stage::cases();
    let prepared = cases
        .iter()
        .find(|prepared| prepared.case.id == CASE)
        .ok_or_else(|| format!("there is no case {CASE}"))?;
    let (warm, end) = stage::with_agent(async |agent| {
        let process = agent
            .process()
            .map(innermost)
            .expect("an agent of this host");
        let none = Holds::of(process).namespaces;
        let mut warm = None;
        for lab in 0..labs {
            if lab == WARM {
                warm = Some(at_rest(process, none).await);
            }
            let mut session = agent.build(prepared.plan.clone()).await?;
            session.probe().await?;
            session.end().await?;
        }
        Ok((warm, at_rest(process, none).await))
    })?;
    let warm = warm.ok_or("more labs are needed to get warm")?;
    let told = ["front end", "agent"]
        .iter()
        .zip(warm.iter().zip(&end))
        .map(|(who, (warm, end))| format!("{who}: {warm} after {WARM} labs, {end} after {labs}"))
        .collect::<Vec<_>>()
        .join("\n");
    println!("{told}");
    if warm
        .iter()
        .zip(&end)
        .all(|(warm, end)| end.is_as_flat_as(warm))
    {
        return Ok(());
    }
    Err(told.into())
}

/// What this process and the agent hold once it has let go of all namespaces but
/// so many. It keeps those of labs that are over for a moment.
async fn at_rest(agent: u32, namespaces: usize) -> [Holds; 2] {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Holds::of(agent).namespaces > namespaces && Instant::now() < deadline {
        tokio::task::yield_now().await;
    }
    [Holds::of(std::process::id()), Holds::of(agent)]
}

/// The agent's own process, the last of those that wait for it.
fn innermost(process: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let children = children.unwrap_or_default();
    let child = children
        .split_whitespace()
        .next()
        .and_then(|child| child.parse().ok());
    child.map_or(process, innermost)
}
