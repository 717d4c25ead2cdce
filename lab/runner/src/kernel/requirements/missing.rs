//! Requirements of a plan that a machine does not meet, with the help to meet them.

use std::fmt::{self, Write as _};

use super::modules::{ModuleState, Modules};
use svclab_agent::PATH;
use svclab_model::protocol::{Failure, FailureKind};
use svclab_model::tools::package;
use svclab_planner::requirements::{Requester, Requirements};

/// Maximum number of items of each kind in a message.
const MAX_LISTED: usize = 12;

/// Missing requirement of a plan, with its requester.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingItem {
    /// Name of the module or program.
    pub name: String,
    /// First requester of the item.
    pub requester: Requester,
}

/// Requirements of a plan that a machine does not meet. `Display` prints them without the help.
#[derive(Debug, Clone, PartialEq, Eq, Default, thiserror::Error)]
pub struct MissingRequirements {
    /// Modules that the kernel would have to load. svclab never makes the kernel load a module.
    pub modules: Vec<MissingItem>,
    /// Names for which this kernel has no module.
    pub absent: Vec<MissingItem>,
    /// Programs that are not installed.
    pub programs: Vec<MissingItem>,
    /// Reason why svclab lacks the privileges for IPVS, as text that follows "svclab", with the
    /// requester. `None` if IPVS is not needed or the privileges are present.
    pub privileges: Option<Box<MissingItem>>,
    /// Whether some of `modules` may be built into the kernel, because the machine does not show
    /// which modules are.
    pub may_be_built_in: bool,
}

impl MissingRequirements {
    /// Compares the requirements of a plan with a machine. `has_program` returns whether the agent
    /// finds a program. `root` returns why svclab is not the machine's own root, if it is not; it
    /// is called only for plans that need root.
    ///
    /// # Errors
    ///
    /// When a requirement is not met.
    pub fn check(
        needs: &Requirements,
        modules: &Modules,
        has_program: impl Fn(&str) -> bool,
        root: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), Self> {
        let mut missing = Self::default();
        for (name, requester) in needs.modules() {
            let missing_item = |name: &str| MissingItem {
                name: name.to_owned(),
                requester: requester.clone(),
            };
            match modules.state(name) {
                ModuleState::Present => {}
                ModuleState::Absent => missing.absent.push(missing_item(name)),
                ModuleState::Loadable(modules_to_load) => {
                    for module in modules_to_load {
                        if !missing.modules.iter().any(|item| item.name == module) {
                            missing.modules.push(missing_item(&module));
                        }
                    }
                }
            }
        }
        for (name, requester) in needs.programs().filter(|(name, _)| !has_program(name)) {
            missing.programs.push(MissingItem {
                name: name.to_owned(),
                requester: requester.clone(),
            });
        }
        if let Some(requester) = needs.ipvs_requester()
            && let Err(name) = root()
        {
            let by = requester.clone();
            missing.privileges = Some(Box::new(MissingItem {
                name,
                requester: by,
            }));
        }
        missing.may_be_built_in = !missing.modules.is_empty() && !modules.shows_lists();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(missing)
        }
    }

    fn is_empty(&self) -> bool {
        self.modules.is_empty()
            && self.absent.is_empty()
            && self.programs.is_empty()
            && self.privileges.is_none()
    }

    /// Returns all missing items in one line, without requesters.
    #[must_use]
    pub fn summary(&self) -> String {
        let names = |lacks: &[MissingItem]| {
            let names: Vec<&str> = lacks.iter().map(|lack| lack.name.as_str()).collect();
            names.join(", ")
        };
        [
            ("not loaded", &self.modules),
            ("kernel module not available", &self.absent),
            ("not installed", &self.programs),
        ]
        .into_iter()
        .filter(|(_, lacks)| !lacks.is_empty())
        .map(|(state, lacks)| format!("{state}: {}", names(lacks)))
        .chain(
            self.privileges
                .iter()
                .map(|lack| format!("svclab {}", lack.name)),
        )
        .collect::<Vec<_>>()
        .join("; ")
    }

    /// Returns the command that loads the modules that can be loaded. `None` if there are none.
    #[must_use]
    pub fn modprobe(&self) -> Option<String> {
        let names: Vec<&str> = self.modules.iter().map(|lack| lack.name.as_str()).collect();
        modprobe(&names)
    }

    /// Returns the help: every command that helps, with the package names of Debian.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        let mut remedies = Vec::new();
        if let Some(modprobe) = self.modprobe() {
            let mut remedy = format!("run `{modprobe}` as root");
            if self.modules.iter().any(|lack| lack.name == "br_netfilter") {
                remedy.push_str(
                    "; then br_netfilter also passes the packets on this machine's own bridges \
                     through this machine's rules",
                );
            }
            if self.may_be_built_in {
                remedy.push_str(
                    "; in a container, mount the host's /lib/modules, which lists the built-in \
                     modules of the kernel",
                );
            }
            remedies.push(remedy);
        }
        if !self.absent.is_empty() {
            remedies.push(
                "install the package with further modules of the kernel if there is one (Ubuntu: \
                 `apt-get install linux-modules-extra-$(uname -r)`), or boot another kernel"
                    .to_owned(),
            );
        }
        let (packages_of_programs, without_package): (Vec<_>, Vec<_>) = self
            .programs
            .iter()
            .map(|lack| package(&lack.name).ok_or(&lack.name))
            .partition(Result::is_ok);
        let mut packages: Vec<&str> = packages_of_programs.into_iter().flatten().collect();
        packages.dedup();
        for name in without_package.into_iter().filter_map(Result::err) {
            remedies.push(format!(
                "install `{name}` in one of these directories: {PATH}"
            ));
        }
        if !packages.is_empty() {
            remedies.push(format!(
                "run `apt-get install {}`, or your distribution's equivalent, as root",
                packages.join(" ")
            ));
        }
        if self.privileges.is_some() {
            remedies.push(
                "run svclab as root of the machine itself; in a container, this requires \
                 --privileged and no user namespaces"
                    .to_owned(),
            );
        }
        (!remedies.is_empty()).then(|| remedies.join("\n"))
    }
}

/// Returns the one command that loads modules. `None` if `names` is empty.
pub(in crate::kernel) fn modprobe(names: &[impl AsRef<str>]) -> Option<String> {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names[..] {
        [] => None,
        [name] => Some(format!("modprobe {name}")),
        // Without `-a`, `modprobe` treats all names but the first as parameters of the first.
        _ => Some(format!("modprobe -a {}", names.join(" "))),
    }
}

impl fmt::Display for MissingRequirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (
                "kernel modules not loaded (svclab never loads modules)",
                &self.modules,
            ),
            ("kernel modules not available", &self.absent),
            ("programs not installed", &self.programs),
        ];
        let mut text = String::new();
        for (heading, lacks) in parts {
            if lacks.is_empty() {
                continue;
            }
            if !text.is_empty() {
                text.push('\n');
            }
            write!(text, "{heading}:")?;
            let width = lacks
                .iter()
                .take(MAX_LISTED)
                .map(|lack| lack.name.len())
                .max()
                .unwrap_or(0);
            for MissingItem {
                name,
                requester: by,
            } in lacks.iter().take(MAX_LISTED)
            {
                write!(text, "\n  {name:width$}  for {by}")?;
            }
            if lacks.len() > MAX_LISTED {
                write!(text, "\n  and {} more", lacks.len() - MAX_LISTED)?;
            }
        }
        if let Some(MissingItem {
            name,
            requester: by,
        }) = self.privileges.as_deref()
        {
            if !text.is_empty() {
                text.push('\n');
            }
            write!(
                text,
                "IPVS needs root of the machine itself, but svclab {name}:\n  for {by}"
            )?;
        }
        f.write_str(&text)
    }
}

impl From<MissingRequirements> for Failure {
    fn from(missing: MissingRequirements) -> Self {
        Self {
            kind: FailureKind::Machine,
            message: missing.to_string(),
            remedy: missing.remedy(),
            rejected: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::ModuleLists;
    use svclab_model::plan::{Namespace, Plan};
    use svclab_ruleset::Protocol;
    use svclab_ruleset::ipvs::{SchedulerFlags, VirtualServer, VirtualServerKey};

    fn ipvs_requirements() -> Requirements {
        Requirements::from_plan(&Plan {
            namespaces: vec![Namespace {
                name: "node-1".to_owned(),
                ipvs: vec![VirtualServer {
                    key: VirtualServerKey::Address {
                        protocol: Protocol::Tcp,
                        address: [10, 96, 0, 1].into(),
                        port: 80,
                    },
                    scheduler: "rr".to_owned(),
                    persistence: None,
                    flags: SchedulerFlags::default(),
                    servers: Vec::new(),
                }],
                ..Namespace::default()
            }],
            ..Plan::default()
        })
    }

    fn modules(loaded: &str) -> Modules {
        Modules::new(&ModuleLists {
            loaded: Some(loaded.to_owned()),
            ..ModuleLists::default()
        })
    }

    #[test]
    fn missing_ipvs_without_root_is_reported() {
        let unprivileged = || Err("runs without root".to_owned());
        let check = |loaded, root: fn() -> Result<(), String>| {
            MissingRequirements::check(&ipvs_requirements(), &modules(loaded), |_| true, root)
        };
        let loaded = "ip_vs 1 0 - Live 0x0\nip_vs_rr 1 0 - Live 0x0\n";
        let render = |missing: &MissingRequirements| {
            format!(
                "{missing}\n---\n{}\n---\n{}",
                missing.summary(),
                missing.remedy().unwrap_or_default()
            )
        };
        assert_eq!(check(loaded, || Ok(())), Ok(()));
        let neither = check("", unprivileged).unwrap_err();
        insta::assert_snapshot!("neither_modules_nor_root", render(&neither));
        let only_modules = check(loaded, unprivileged).unwrap_err();
        insta::assert_snapshot!("modules_without_root", render(&only_modules));
    }

    #[test]
    fn missing_plan_without_ipvs_does_not_check_root() {
        let needs = Requirements::from_plan(&Plan::default());
        let root = || panic!("the privileges were checked");
        assert_eq!(
            MissingRequirements::check(&needs, &modules(""), |_| true, root),
            Ok(())
        );
    }
}
