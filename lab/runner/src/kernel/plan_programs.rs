//! Selects the programs that a plan runs in addition to those of every lab.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::agent::blocking::run_blocking;
use super::error::guest_files::UserlandError;
use super::guest::initramfs::userland;
use svclab_agent::find_program;
use svclab_model::plan::{Backend, Plan};

/// Additional memory of a guest per kube-proxy of a plan, in MiB.
const MIB_PER_KUBE_PROXY: u32 = 64;

/// Programs of a plan, by their paths on this machine. A program that is not installed is omitted;
/// its caller reports the absence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PlanPrograms {
    /// Programs of the plan's commands, which are programs of the system.
    typed: BTreeSet<PathBuf>,
    /// The plan's kube-proxies.
    kube_proxies: BTreeSet<PathBuf>,
    /// Number of nodes with a kube-proxy.
    proxy_count: u32,
}

impl PlanPrograms {
    pub(super) fn from_plan(plan: &Plan) -> Self {
        let typed = plan.commands.iter().filter_map(|typed| {
            let program = find_program(typed.command.first()?)?;
            program.exists().then_some(program)
        });
        let proxies = plan.kube_proxies.iter();
        Self {
            typed: typed.collect(),
            kube_proxies: proxies.map(|proxy| proxy.program.clone().into()).collect(),
            proxy_count: u32::try_from(plan.kube_proxies.len()).unwrap_or(u32::MAX),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.typed.is_empty() && self.kube_proxies.is_empty()
    }

    pub(super) const fn kube_proxies(&self) -> &BTreeSet<PathBuf> {
        &self.kube_proxies
    }

    /// Returns the programs that a guest needs for the plan.
    pub(super) fn in_guest(&self) -> impl Iterator<Item = PathBuf> {
        let called = (!self.kube_proxies.is_empty()).then(kube_proxy_programs);
        let own = self.typed.iter().chain(&self.kube_proxies).cloned();
        own.chain(called.into_iter().flatten())
    }

    /// Returns the additional memory of a guest for the plan, in MiB. A kube-proxy needs more
    /// memory than the rest of a lab.
    pub(super) const fn memory_mib(&self) -> u32 {
        self.proxy_count.saturating_mul(MIB_PER_KUBE_PROXY)
    }

    /// Checks that a guest can contain the programs. The programs are read in another thread.
    ///
    /// # Errors
    ///
    /// When a program or a dependency cannot be collected.
    pub(super) async fn check(&self) -> Result<(), UserlandError> {
        let Self {
            typed,
            kube_proxies,
            ..
        } = self.clone();
        run_blocking(move || userland::check_programs(&typed, &kube_proxies)).await
    }
}

/// Returns the paths of the programs that a real kube-proxy runs. Guests do not need these programs
/// for generated rules.
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
