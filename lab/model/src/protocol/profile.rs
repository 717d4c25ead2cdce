//! Defines what an agent measures of its work on a lab: the cost of each phase and of each program.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Part of an agent's work on a lab. No two phases run at a time, except programs that start early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Parses the request that contains the plan.
    Parse,
    /// Creates namespaces, their netlink sockets and the tenant of the programs.
    Namespaces,
    /// Writes sysctls.
    Sysctls,
    /// Starts the programs that load rules.
    ProgramStarts,
    /// Creates interfaces.
    Links,
    /// Adds addresses, attaches interfaces to bridges and sets interfaces up.
    Addresses,
    /// Waits until interfaces carry packets.
    Carrier,
    /// Adds routes, routing rules and neighbours.
    Routes,
    /// Adds virtual servers.
    Ipvs,
    /// Waits for sets and rules, which are loaded while the phases before this one run.
    Rules,
    /// Starts servers.
    Servers,
    /// Waits for the rules of real kube-proxies.
    KubeProxies,
    /// Runs `byHand` commands.
    Commands,
    /// Runs the first health checks of load balancers.
    HealthChecks,
    /// Applies a change to a running lab.
    Change,
    /// Opens captures and traces, and reads counters before the probes.
    StartWatching,
    /// Runs probes.
    Probes,
    /// Waits for packets that are still on their way.
    Quiesce,
    /// Closes captures and traces.
    EndWatching,
    /// Reads counters, rules and kernel state.
    ReadBack,
    /// Serializes answers.
    Serialize,
}

/// Cost of a phase or of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// Number of times that the phase ran or the program started.
    pub count: u32,
    /// Time on the wall clock.
    pub wall: Duration,
    /// Processor time outside the kernel.
    pub user: Duration,
    /// Processor time in the kernel, in system calls.
    pub kernel: Duration,
}

/// Costs of an agent's work on a lab since the lab was built or the last profile was taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// Cost of each phase. The processor time is that of the agent, and of the programs that ended
    /// in the phase.
    pub phases: BTreeMap<Phase, Cost>,
    /// Cost of each program, by its name. The time on the wall clock begins when the program
    /// starts, and several programs run at a time. A program that is still running has no cost yet.
    pub programs: BTreeMap<String, Cost>,
}
