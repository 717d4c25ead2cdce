//! Runs labs one after another in one agent. Checks that descriptors, threads, namespaces and
//! memory of the agent and the front end do not grow. Prints the numbers.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use svclab_test_support::cases::prepare_case;
use svclab_test_support::ordinary_or_full;
use svclab_test_support::programs::with_agent;

/// A case whose probe connects at once, in a cluster of a few nodes.
const CASE: &str = "canal-stale-rule/stale=removed,rpFilter=1,underlay=drops";

/// Number of labs before the baseline is measured; by then all one-time allocations are done.
const WARMUP_LABS: usize = 20;

/// Allowed difference of memory in KiB; the allocator keeps a varying amount after each lab. A
/// leaked lab of this kind costs some 300 KiB, so a leak exceeds the slack after a few labs.
const MAX_MEMORY_DIFFERENCE: u64 = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
struct ProcessResources {
    descriptors: usize,
    threads: usize,
    /// Number of distinct network namespaces among its descriptors.
    namespaces: usize,
    /// Private memory in KiB.
    memory: u64,
}

impl fmt::Display for ProcessResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} descriptors, {} threads, {} namespaces, {} KiB",
            self.descriptors, self.threads, self.namespaces, self.memory
        )
    }
}

impl ProcessResources {
    fn read(process: u32) -> Self {
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

    fn has_not_grown_since(&self, other: &Self) -> bool {
        let steady = |holds: &Self| (holds.descriptors, holds.threads, holds.namespaces);
        steady(self) == steady(other) && self.memory.abs_diff(other.memory) <= MAX_MEMORY_DIFFERENCE
    }
}

pub fn trial() -> Trial {
    let labs = ordinary_or_full(60, 1000);
    Trial::test(format!("{labs} labs use the memory of one"), move || {
        run_labs_in_a_row(labs)
    })
}

fn run_labs_in_a_row(labs: usize) -> Result<(), Failed> {
    let prepared = prepare_case(CASE);
    let (warm, end) = with_agent(async |agent| {
        let process = agent
            .process()
            .map(innermost_child)
            .expect("an agent of this host");
        let initial_namespaces = ProcessResources::read(process).namespaces;
        let mut warm = None;
        for lab in 0..labs {
            if lab == WARMUP_LABS {
                warm = Some(measure_when_idle(process, initial_namespaces).await);
            }
            let mut session = agent.build(prepared.plan.clone()).await?;
            session.probe().await?;
            session.remove().await?;
        }
        Ok((warm, measure_when_idle(process, initial_namespaces).await))
    })?;
    let warm = warm.ok_or("too few labs to warm up")?;
    let summary = ["front end", "agent"]
        .iter()
        .zip(warm.iter().zip(&end))
        .map(|(who, (warm, end))| {
            format!("{who}: {warm} after {WARMUP_LABS} labs, {end} after {labs}")
        })
        .collect::<Vec<_>>()
        .join("\n");
    println!("{summary}");
    if warm
        .iter()
        .zip(&end)
        .all(|(warm, end)| end.has_not_grown_since(warm))
    {
        return Ok(());
    }
    Err(summary.into())
}

/// Measures this process and the agent, as soon as the agent holds at most `namespaces` network
/// namespaces. The agent deletes the namespaces of ended labs with a short delay.
async fn measure_when_idle(agent: u32, namespaces: usize) -> [ProcessResources; 2] {
    let deadline = Instant::now() + Duration::from_secs(10);
    while ProcessResources::read(agent).namespaces > namespaces && Instant::now() < deadline {
        tokio::task::yield_now().await;
    }
    [
        ProcessResources::read(std::process::id()),
        ProcessResources::read(agent),
    ]
}

/// Returns the PID of the agent's innermost process: its parents only wait for it.
fn innermost_child(process: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let children = children.unwrap_or_default();
    let child = children
        .split_whitespace()
        .next()
        .and_then(|child| child.parse().ok());
    child.map_or(process, innermost_child)
}
