//! Removes from a plan what the kernel rejected of a replayed node, and finds the lines in the
//! dump.

mod rules;
mod sets;
mod settings;
mod tables;

pub use tables::{committed_table, truncate_table};

use std::collections::BTreeSet;

use super::rejection_reason::rejection_reason;
use super::report::{FileLine, OmittedItem};
use rules::has_extension;
use svclab_dump::NodeDump;
use svclab_model::plan::{Backend, Namespace, Plan};
use svclab_model::protocol::{IP_ADDR, IP_ROUTE, IP_RULE, IPVSADM, RejectedInput, SYSCTL};
use svclab_model::tools::iptables_program;
use svclab_ruleset::tool::Format;

/// Removes the rejected items from a node, with all items that depend on them. Returns the removed
/// items; none if the dump does not contain them.
pub fn remove_rejected(
    plan: &mut Plan,
    dump: &NodeDump,
    rejected: &RejectedInput,
) -> Vec<OmittedItem> {
    let mut namespaces = plan.namespaces.iter_mut();
    let Some(namespace) = namespaces.find(|ns| ns.name == rejected.namespace) else {
        return Vec::new();
    };
    let reason = rejection_reason(rejected);
    let mut remover = RejectedRemover {
        namespace,
        dump,
        reason,
        removed: Vec::new(),
    };
    match rejected.program.as_str() {
        "ipset" => remover.remove_set_line(&rejected.line),
        "nft" => remover.remove_nft(rejected),
        SYSCTL => remover.remove_sysctls(rejected),
        IP_ROUTE | IP_RULE | IP_ADDR => remover.remove_routing(rejected),
        IPVSADM => remover.remove_servers_where(|server| server.key.to_string() == rejected.line),
        _ => remover.remove_rules(rejected),
    }
    remover.removed
}

/// Removes the items of a node that require these modules, which the kernel does not have:
/// schedulers, set types, matches and targets.
pub fn remove_missing_modules(
    plan: &mut Plan,
    node: &str,
    dump: &NodeDump,
    modules: &BTreeSet<&str>,
) -> Vec<OmittedItem> {
    let Some(namespace) = plan.namespaces.iter_mut().find(|ns| ns.name == node) else {
        return Vec::new();
    };
    let mut remover = RejectedRemover {
        namespace,
        dump,
        reason: String::new(),
        removed: Vec::new(),
    };
    for module in modules {
        remover.reason = format!("kernel module {module} is not available");
        let after_prefix = |begins: &str| module.strip_prefix(begins);
        if let Some(scheduler) = after_prefix("ip_vs_") {
            remover.remove_servers_where(|server| server.scheduler == scheduler);
        } else if let Some(kind) = after_prefix("ip_set_") {
            let sets = remover.namespace.ipset.state().into_iter().flatten();
            let of_kind = sets.filter(|(_, set)| &*set.kind == kind);
            let names: Vec<String> = of_kind.map(|(name, _)| name.clone()).collect();
            for name in names {
                remover.remove_set(&name);
            }
        } else if *module == "br_netfilter" {
            remover.remove_sysctls_with_prefix("net.bridge.");
        } else if let Some(name) = after_prefix("ipt_").or_else(|| after_prefix("ip6t_")) {
            let program = if module.starts_with("ip6") { 6 } else { 4 };
            for backend in [Backend::Nft, Backend::Legacy] {
                let program = iptables_program(program, backend, "restore");
                remover.remove_rules_where(&program, |rule, _| has_extension(rule, name));
            }
        }
    }
    remover.removed
}

struct RejectedRemover<'a> {
    namespace: &'a mut Namespace,
    dump: &'a NodeDump,
    reason: String,
    removed: Vec<OmittedItem>,
}

impl RejectedRemover<'_> {
    fn location_of(&self, format: Format, line: u32) -> Option<FileLine> {
        FileLine::in_dump(self.dump, format, line).filter(|own| own.line > 0)
    }

    fn add_removed(
        &mut self,
        location: Option<FileLine>,
        description: impl Into<String>,
        counted_as: &str,
    ) {
        let item = OmittedItem::new(location, description, self.reason.clone());
        self.removed.push(item.with_count_word(counted_as));
    }
}
