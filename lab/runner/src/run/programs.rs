//! Selects the programs that agents need in addition to those of every lab.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::kernel::KernelSelector;
use svclab_agent::find_program;
use svclab_model::plan::{Backend, Plan};

/// Additional memory of a guest per kube-proxy of a case, in MiB.
const MIB_PER_KUBE_PROXY: u32 = 64;

/// Returns the paths on this machine of the programs that a real kube-proxy runs. Guests do not
/// need these programs for generated rules. A program that is not installed is skipped; its caller
/// reports the absence.
fn kube_proxy_programs() -> Vec<PathBuf> {
    let iptables = [Backend::Nft, Backend::Legacy].map(|backend| {
        ["", "-save", "-restore"].map(|verb| {
            ["iptables", "ip6tables"].map(|family| format!("{family}-{}{verb}", backend.name()))
        })
    });
    let names = iptables.into_iter().flatten().flatten();
    let other_names = ["ipset", "nft", "conntrack"].map(str::to_owned);
    names
        .chain(other_names)
        .filter_map(|name| find_program(&name))
        .collect()
}

/// Returns `kernels` with the programs that the nodes of `plans` run. All agents also get the
/// programs in `everywhere`; guests also get those in `in_guests`. Guests get memory for the
/// maximum number of kube-proxies in one plan.
#[must_use]
pub fn with_plan_programs(
    kernels: KernelSelector,
    plans: &[&Plan],
    everywhere: Vec<PathBuf>,
    in_guests: Vec<PathBuf>,
) -> KernelSelector {
    let proxies = plans.iter().flat_map(|plan| &plan.kube_proxies);
    let programs: BTreeSet<PathBuf> = proxies.map(|proxy| proxy.program.clone().into()).collect();
    let typed = plans.iter().flat_map(|plan| &plan.commands);
    let typed = typed.filter_map(|typed| find_program(typed.command.first()?));
    let mut in_guests: BTreeSet<PathBuf> = in_guests.into_iter().chain(typed).collect();
    if !programs.is_empty() {
        in_guests.extend(kube_proxy_programs());
    }
    let everywhere: BTreeSet<PathBuf> = everywhere.into_iter().chain(programs).collect();
    if everywhere.is_empty() && in_guests.is_empty() {
        return kernels;
    }
    // A kube-proxy needs more memory than the rest of a lab.
    let max_proxies = plans.iter().map(|plan| plan.kube_proxies.len()).max();
    let proxy_count = u32::try_from(max_proxies.unwrap_or_default()).unwrap_or_default();
    kernels
        .with_programs(
            everywhere.into_iter().collect(),
            in_guests.into_iter().collect(),
        )
        .with_additional_memory(proxy_count.saturating_mul(MIB_PER_KUBE_PROXY))
}
