//! Builds the plan of one node with kube-proxy only: its rules, sets, tables, virtual servers and
//! bound addresses.

use svclab_model::plan::{Backend, EvidenceRequest, Iptables, Namespace, Plan};
use svclab_rules::kube_proxy::{self, KubeProxy, KubeProxyError, Mode, Objects};
use svclab_ruleset::ipset::IpsetScript;
use svclab_ruleset::iptables::script::{IptablesScript, Table};

use super::rules::kube_proxy_interface;

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
    let mut bound_addresses = Vec::new();
    for family in kube_proxy::families(proxy, objects) {
        if proxy.mode == Mode::Nftables {
            let table = kube_proxy::nftables_rules(proxy, objects, family)?;
            node.nft.push_str(&table.to_string());
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
    node.ipset = sets.to_string();
    if proxy.mode != Mode::Nftables {
        let [v4, v6] = scripts.map(|script| script.to_string());
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
    for text in rules.flat_map(|rules| [&mut rules.v4, &mut rules.v6]) {
        let declared = format!(":{} ", kube_proxy::chains::MARK_DROP);
        let jump = format!("-j {}\n", kube_proxy::chains::MARK_DROP);
        let head = format!("*{}\n", Table::Nat);
        if text.contains(&jump) && !text.contains(&declared) {
            *text = text.replacen(&head, &format!("{head}{declared}- [0:0]\n"), 1);
        }
    }
}
