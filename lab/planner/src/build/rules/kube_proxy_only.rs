//! Builds the plan of one node with kube-proxy only: its rules, sets, tables, virtual servers and
//! bound addresses.

use svclab_model::plan::{Backend, EvidenceRequest, Iptables, Namespace, Plan};
use svclab_rules::kube_proxy::chains::MARK_DROP;
use svclab_rules::kube_proxy::{self, KubeProxy, KubeProxyError, Mode, Objects};
use svclab_ruleset::input::Input;
use svclab_ruleset::ipset::IpsetScript;
use svclab_ruleset::iptables::script::{IptablesScript, Table};
use svclab_ruleset::nft::Ruleset;

use crate::build::rules::kube_proxy_interface;

/// Returns the plan of what `proxy` generates from `objects`. The plan has one namespace with the
/// name of the node, and reads back all of its state.
///
/// # Errors
///
/// See [`KubeProxyError`].
pub fn kube_proxy_plan(
    proxy: &KubeProxy,
    objects: &Objects<'_>,
    backend: Backend,
) -> Result<Plan, KubeProxyError> {
    let mut node = Namespace {
        name: objects.node.to_owned(),
        ..Namespace::default()
    };
    let mut sets = IpsetScript::new();
    let mut scripts = [IptablesScript::new(), IptablesScript::new()];
    let mut tables = Vec::new();
    let mut bound_addresses = Vec::new();
    for family in kube_proxy::families(proxy, objects) {
        if proxy.mode == Mode::Nftables {
            let table = kube_proxy::nftables_rules(proxy, objects, family)?;
            tables.push(table);
            continue;
        }
        let script = match family {
            kube_proxy::Family::V4 => &mut scripts[0],
            kube_proxy::Family::V6 => &mut scripts[1],
        };
        if proxy.mode == Mode::Ipvs {
            let rules = kube_proxy::ipvs_rules(proxy, objects, family)?;
            *script = rules.script;
            sets.append(rules.sets)?;
            node.ipvs.extend(rules.servers);
            bound_addresses.extend(rules.bound);
        } else {
            let rules = kube_proxy::rules(proxy, objects, family)?;
            *script = rules.script;
            let names = rules.accounting.into_iter().map(str::to_owned);
            node.accounting.extend(names);
        }
    }
    node.accounting.sort();
    node.accounting.dedup();
    if proxy.mode == Mode::Ipvs {
        node.links
            .push(kube_proxy_interface(&node.name, &bound_addresses));
        node.ipvs_timeouts = kube_proxy::ipvs::timeouts(proxy);
    }
    node.ipset = sets.saved().into();
    if proxy.mode == Mode::Nftables {
        node.nft = Ruleset { tables }.into();
    } else {
        let [v4, v6] = scripts.map(Input::new);
        node.iptables = Some(Iptables { backend, v4, v6 });
    }
    let namespaces = vec![node.name.clone()];
    Ok(Plan {
        case: objects.node.to_owned(),
        evidence: EvidenceRequest {
            rules: namespaces.clone(),
            sets: namespaces.clone(),
            ipvs: namespaces.clone(),
            links: namespaces,
            ..EvidenceRequest::default()
        },
        namespaces: vec![node],
        ..Plan::default()
    })
}

/// Declares the chain that kube-proxies up to v1.19 expect from the kubelet: `KUBE-MARK-DROP` in
/// table nat must exist before their rules are loaded.
pub fn declare_kubelet_chain(plan: &mut Plan) {
    let rules = plan
        .namespaces
        .iter_mut()
        .filter_map(|namespace| namespace.iptables.as_mut());
    for input in rules.flat_map(|rules| [&mut rules.v4, &mut rules.v6]) {
        let jump = format!("-j {MARK_DROP}");
        let needs_chain = |script: &IptablesScript| {
            script.table(Table::Nat).is_some_and(|nat| {
                let is_declared = nat.chains.iter().any(|chain| chain == MARK_DROP);
                let mut commands = nat.commands.iter();
                !is_declared && commands.any(|command| command.rule.ends_with(&jump))
            })
        };
        if input.state().is_ok_and(needs_chain) {
            let declare = |script: &mut IptablesScript| {
                let nat = script.table_mut(Table::Nat);
                nat.chains.insert(0, MARK_DROP.to_owned());
            };
            // The state was read just now.
            let _ = input.edit(declare);
        }
    }
}
