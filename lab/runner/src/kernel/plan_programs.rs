//! Selects the programs that a plan runs in addition to those of every lab.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Mutex;

use super::agent::blocking::run_blocking;
use super::error::guest::GuestError;
use super::guest::initramfs::userland;
use svclab_agent::find_program;
use svclab_model::plan::{Backend, Plan};

/// Minimum additional memory of a guest with additional programs, in MiB. The guest contains these
/// programs twice while it boots.
const MIN_MEMORY_MIB: u32 = 128;

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
}

/// Results of checking that guests can contain programs.
#[derive(Debug, Default)]
pub(super) struct CheckedPrograms(Mutex<BTreeMap<PlanPrograms, CheckResult>>);

type CheckResult = Result<(), Arc<GuestError>>;

impl CheckedPrograms {
    /// Checks that a guest can contain the programs, the first time in another thread.
    ///
    /// # Errors
    ///
    /// When a program or a dependency cannot be collected.
    pub(super) async fn check(&self, programs: &PlanPrograms) -> CheckResult {
        if programs.is_empty() {
            return Ok(());
        }
        let mut checked = self.0.lock().await;
        if let Some(result) = checked.get(programs) {
            return result.clone();
        }
        let PlanPrograms {
            typed,
            kube_proxies,
            ..
        } = programs.clone();
        let check = run_blocking(move || userland::check_programs(&typed, &kube_proxies));
        let result = check.await.map_err(|error| Arc::new(error.into()));
        checked.insert(programs.clone(), result.clone());
        result
    }
}

/// Returns the memory of a guest for additional programs, in MiB.
pub(super) fn memory_mib(programs: &[PathBuf]) -> u32 {
    let sizes = programs
        .iter()
        .filter_map(|program| Some(fs::metadata(program).ok()?.len()));
    let mebibytes = sizes.sum::<u64>().div_ceil(1 << 20);
    let twice = u32::try_from(mebibytes.saturating_mul(2)).unwrap_or(u32::MAX >> 1);
    twice.max(MIN_MEMORY_MIB)
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

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::plan::{CommandLimits, NodeCommand};

    fn programs(typed: &[&str]) -> PlanPrograms {
        let command = |program: &&str| NodeCommand {
            namespace: "node-1".to_owned(),
            command: vec![(*program).to_owned()],
            input: String::new(),
            limits: CommandLimits::default(),
        };
        PlanPrograms::from_plan(&Plan {
            commands: typed.iter().map(command).collect(),
            ..Plan::default()
        })
    }

    #[tokio::test]
    async fn check_device_of_one_plan_leaves_other_plans() {
        let checked = CheckedPrograms::default();
        assert!(checked.check(&programs(&["sh"])).await.is_ok());
        let error = checked.check(&programs(&["sh", "/dev/zero"])).await;
        insta::assert_snapshot!(
            error.unwrap_err(),
            @"cannot collect the programs of the guest: /dev/zero is not a program of the system"
        );
        assert!(programs(&["no-such-program", "/no/such/program"]).is_empty());
    }

    #[test]
    fn memory_grows_with_large_programs() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(100 << 20).unwrap();
        assert_eq!(memory_mib(&[file.path().to_owned()]), 200);
        assert_eq!(memory_mib(&["/bin/sh".into()]), MIN_MEMORY_MIB);
    }
}
