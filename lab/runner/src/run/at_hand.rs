//! The programs that agents have at hand besides those that every lab needs.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::kernel::Kernels;
use svclab_agent::find_program;
use svclab_model::plan::{Backend, Plan};

/// What a guest has more for each kube-proxy of a case, in MiB.
const PROXY: u32 = 64;

/// What real kube-proxies call, where it lies on this machine: guests lack what
/// generated rules do without. What is not there is missed by whoever calls it.
fn called() -> Vec<PathBuf> {
    let iptables = [Backend::Nft, Backend::Legacy].map(|backend| {
        ["", "-save", "-restore"].map(|verb| {
            ["iptables", "ip6tables"].map(|family| format!("{family}-{}{verb}", backend.word()))
        })
    });
    let names = iptables.into_iter().flatten().flatten();
    let others = ["ipset", "nft", "conntrack"].map(str::to_owned);
    names
        .chain(others)
        .filter_map(|name| find_program(&name))
        .collect()
}

/// These kernels, whose agents have at hand what the nodes of these plans run, and other
/// programs: `everywhere`, and `in_guests` besides. Guests have room for as many
/// kube-proxies as a plan has at most.
#[must_use]
pub fn at_hand(
    kernels: Kernels,
    plans: &[&Plan],
    everywhere: Vec<PathBuf>,
    in_guests: Vec<PathBuf>,
) -> Kernels {
    let proxies = plans.iter().flat_map(|plan| &plan.proxies);
    let programs: BTreeSet<PathBuf> = proxies.map(|proxy| proxy.program.clone().into()).collect();
    let typed = plans.iter().flat_map(|plan| &plan.typed);
    let typed = typed.filter_map(|typed| find_program(typed.command.first()?));
    let mut in_guests: BTreeSet<PathBuf> = in_guests.into_iter().chain(typed).collect();
    if !programs.is_empty() {
        in_guests.extend(called());
    }
    let everywhere: BTreeSet<PathBuf> = everywhere.into_iter().chain(programs).collect();
    if everywhere.is_empty() && in_guests.is_empty() {
        return kernels;
    }
    // A kube-proxy is larger than all else of a lab.
    let most = plans.iter().map(|plan| plan.proxies.len()).max();
    let more = u32::try_from(most.unwrap_or_default()).unwrap_or_default();
    kernels
        .with_programs(
            everywhere.into_iter().collect(),
            in_guests.into_iter().collect(),
        )
        .with_more_room(more.saturating_mul(PROXY))
}
