//! Edits sysctls, rules, sets and elements in the namespaces of a plan.

use std::net::SocketAddr;

use super::ChangeError;
use svclab_model::plan::{Backend, Iptables, Link, Namespace, Plan, Sysctl, forwarding_switch};
use svclab_ruleset::input::{Input, ProgramInput};
use svclab_ruleset::ipset::saved::Sets;
use svclab_ruleset::iptables::command::Command;
use svclab_ruleset::iptables::script::{IptablesScript, Table};
use svclab_ruleset::ipvs::VirtualServerKey;
use svclab_ruleset::nft::{self, Ruleset};

/// Returns a namespace of a plan.
///
/// # Errors
///
/// Returns an error if no namespace has this name.
pub fn namespace<'p>(plan: &'p mut Plan, name: &str) -> Result<&'p mut Namespace, ChangeError> {
    let mut all = plan.namespaces.iter_mut();
    all.find(|namespace| namespace.name == name)
        .ok_or_else(|| ChangeError::Missing(name.to_owned()))
}

/// Sets a sysctl.
///
/// # Errors
///
/// Returns an error if the sysctl already has this value.
pub fn set_sysctl(namespace: &mut Namespace, key: &str, value: &str) -> Result<(), ChangeError> {
    namespace
        .sysctls
        .retain(|sysctl| forwarding_switch(&sysctl.key) != Some(key));
    let mut sysctls = namespace.sysctls.iter_mut();
    if let Some(sysctl) = sysctls.rfind(|setting| setting.key == key) {
        if sysctl.value == value {
            return Err(ChangeError::NoEffect);
        }
        value.clone_into(&mut sysctl.value);
        return Ok(());
    }
    // A sysctl of one interface is set once the interface exists.
    let interface = key
        .strip_prefix("net.ipv4.conf.")
        .and_then(|key| key.split('.').next());
    let link = interface.map(|of| of.replace('/', "."));
    let link = link.filter(|link| namespace.links.iter().any(|each| each.name == *link));
    namespace.sysctls.push(Sysctl {
        key: key.to_owned(),
        value: value.to_owned(),
        link,
        optional: false,
    });
    Ok(())
}

/// Deletes a rule by its number, from 1, after all commands of the script.
///
/// # Errors
///
/// Returns an error if the namespace has no rules of this iptables variant and table.
pub fn delete_rule(
    namespace: &mut Namespace,
    backend: Backend,
    v6: bool,
    table: &str,
    (chain, number): (&str, u32),
) -> Result<(), ChangeError> {
    let missing = || ChangeError::Missing(namespace.name.clone());
    let table = Table::from_name(table).ok_or_else(missing)?;
    let delete = |script: &mut IptablesScript| {
        script.table(table)?;
        let block = script.table_mut(table);
        block.push(Command::delete_at(chain, usize::try_from(number).ok()?));
        Some(())
    };
    edit_rules(namespace, backend, v6, delete)
}

/// Edits the rules of an iptables variant and IP family.
fn edit_rules(
    namespace: &mut Namespace,
    backend: Backend,
    v6: bool,
    edit: impl FnOnce(&mut IptablesScript) -> Option<()>,
) -> Result<(), ChangeError> {
    let name = namespace.name.clone();
    let mut variants = namespace
        .iptables
        .iter_mut()
        .chain(&mut namespace.other_iptables);
    let variant = variants.find(|rules| rules.backend == backend);
    let Iptables { v4, v6: six, .. } = variant.ok_or_else(|| ChangeError::Missing(name.clone()))?;
    edit_input(&name, if v6 { six } else { v4 }, edit)
}

/// Sets the policy of a built-in chain to ACCEPT.
///
/// # Errors
///
/// Returns an error if the policy of the chain is not known to be another one.
pub fn accept_policy(
    namespace: &mut Namespace,
    backend: Backend,
    v6: bool,
    table: &str,
    chain: &str,
) -> Result<(), ChangeError> {
    let missing = || ChangeError::Missing(namespace.name.clone());
    let table = Table::from_name(table).ok_or_else(missing)?;
    let accept = |script: &mut IptablesScript| {
        script.table(table)?;
        let policies = script.table_mut(table).policies.iter_mut();
        let mut own = policies.filter(|(name, policy)| name == chain && policy != "ACCEPT");
        let (_, policy) = own.next_back()?;
        "ACCEPT".clone_into(policy);
        Some(())
    };
    edit_rules(namespace, backend, v6, accept)
}

/// Sets the policy of a base chain of nftables to accept.
///
/// # Errors
///
/// Returns an error if the chain does not exist.
pub fn accept_nft_policy(
    namespace: &mut Namespace,
    table: &str,
    chain: &str,
) -> Result<(), ChangeError> {
    let accept = |ruleset: &mut Ruleset| {
        let mut chains = find_table(ruleset, table)?.chains.iter_mut();
        let chain = chains.find(|candidate| candidate.name == chain)?;
        "accept".clone_into(&mut chain.hook.as_mut()?.policy);
        Some(())
    };
    edit_input(&namespace.name, &mut namespace.nft, accept)
}

/// Returns an interface of a plan.
///
/// # Errors
///
/// Returns an error if the namespace or interface does not exist.
pub fn link<'p>(
    plan: &'p mut Plan,
    namespace_name: &str,
    name: &str,
) -> Result<&'p mut Link, ChangeError> {
    let links = &mut namespace(plan, namespace_name)?.links;
    let mut links = links.iter_mut();
    links
        .find(|link| link.name == name)
        .ok_or_else(|| ChangeError::Missing(namespace_name.to_owned()))
}

/// Sets the weight of all real servers with weight 0 to 1.
///
/// # Errors
///
/// Returns an error if no virtual server with this address has such a real server.
pub fn enable_real_servers(
    namespace: &mut Namespace,
    server: SocketAddr,
) -> Result<(), ChangeError> {
    let has_address = |key: &VirtualServerKey| {
        matches!(key, VirtualServerKey::Address { address, port, .. }
            if SocketAddr::new(*address, *port) == server)
    };
    let servers = namespace.ipvs.iter_mut();
    let servers = servers.filter(|candidate| has_address(&candidate.key));
    let idle = servers
        .flat_map(|candidate| &mut candidate.servers)
        .filter(|real| real.weight == 0);
    let mut result = Err(ChangeError::NoEffect);
    for real in idle {
        real.weight = 1;
        result = Ok(());
    }
    result
}

/// Deletes an entry of an ipset.
///
/// # Errors
///
/// Returns an error if the set or entry does not exist.
pub fn delete_set_entry(
    namespace: &mut Namespace,
    set: &str,
    entry: &str,
) -> Result<(), ChangeError> {
    let delete = |sets: &mut Sets| sets.get_mut(set)?.entries.shift_remove(entry);
    edit_input(&namespace.name, &mut namespace.ipset, delete)
}

/// Deletes an nftables rule by its number, from 1, and its text.
///
/// # Errors
///
/// Returns an error if the rule does not exist or the ruleset cannot be parsed.
pub fn delete_nft_rule(
    namespace: &mut Namespace,
    table: &str,
    chain: &str,
    (number, rule): (u32, &str),
) -> Result<(), ChangeError> {
    let delete = |ruleset: &mut Ruleset| {
        let table = find_table(ruleset, table)?;
        let mut chains = table.chains.iter_mut();
        let rules = &mut chains.find(|candidate| candidate.name == chain)?.rules;
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        let found = rules.get(index)?;
        (nft::canonical(&found.text) == nft::canonical(rule)).then(|| rules.remove(index))
    };
    edit_input(&namespace.name, &mut namespace.nft, delete)
}

/// Deletes an element of an nftables set or map.
///
/// # Errors
///
/// Returns an error if the element does not exist or the ruleset cannot be parsed.
pub fn delete_nft_element(
    namespace: &mut Namespace,
    table: &str,
    set: &str,
    key: &str,
) -> Result<(), ChangeError> {
    let delete = |ruleset: &mut Ruleset| {
        let table = find_table(ruleset, table)?;
        let mut sets = table.sets.iter_mut();
        let elements = &mut sets.find(|candidate| candidate.name == set)?.elements;
        let before = elements.len();
        elements.retain(|element| element.key != key);
        (elements.len() < before).then_some(())
    };
    edit_input(&namespace.name, &mut namespace.nft, delete)
}

/// Edits an input. `edit` returns `None` if the input lacks what it changes.
fn edit_input<T: ProgramInput + Clone, R>(
    namespace: &str,
    input: &mut Input<T>,
    edit: impl FnOnce(&mut T) -> Option<R>,
) -> Result<(), ChangeError> {
    match input.edit(edit) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(ChangeError::Missing(namespace.to_owned())),
        Err(_) => Err(ChangeError::Unreadable(namespace.to_owned())),
    }
}

/// Returns the table with a family and name: `ip kube-proxy`.
fn find_table<'r>(ruleset: &'r mut Ruleset, name: &str) -> Option<&'r mut nft::Table> {
    let mut tables = ruleset.tables.iter_mut();
    tables.find(|candidate| candidate.full_name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delete_rule_appends_after_all_commands() {
        let mut namespace = Namespace {
            name: "node-1".to_owned(),
            iptables: Some(Iptables {
                backend: Backend::Legacy,
                v4: Input::from_text(
                    "*nat\n-A A -j RETURN\nCOMMIT\n*filter\nCOMMIT\n*nat\n-A B -j A\nCOMMIT\n",
                ),
                v6: Input::default(),
            }),
            ..Namespace::default()
        };
        let deleted = delete_rule(&mut namespace, Backend::Legacy, false, "nat", ("A", 1));
        assert_eq!(deleted, Ok(()));
        let rules = namespace.iptables.clone().expect("rules");
        assert_eq!(
            rules.v4.text(),
            "*nat\n-A A -j RETURN\n-A B -j A\n-D A 1\nCOMMIT\n*filter\nCOMMIT\n"
        );
        let absent = Err(ChangeError::Missing("node-1".to_owned()));
        for (backend, v6, table) in [
            (Backend::Nft, false, "nat"),
            (Backend::Legacy, true, "nat"),
            (Backend::Legacy, false, "raw"),
        ] {
            assert_eq!(
                delete_rule(&mut namespace, backend, v6, table, ("A", 1)),
                absent
            );
        }
    }

    #[test]
    fn delete_set_entry_keeps_entries_with_same_prefix() {
        let mut namespace = Namespace {
            ipset: Input::from_text(
                "create S hash:net comment\nadd S 10.0.0.0/8\nadd S 10.0.0.0/81 comment \"x\"\n",
            ),
            ..Namespace::default()
        };
        assert_eq!(delete_set_entry(&mut namespace, "S", "10.0.0.0/8"), Ok(()));
        assert_eq!(
            namespace.ipset.text(),
            "create S hash:net comment\nadd S 10.0.0.0/81 comment \"x\"\n"
        );
        assert!(delete_set_entry(&mut namespace, "S", "10.0.0.0/8").is_err());
    }

    #[test]
    fn set_sysctl_existing_key_is_replaced() {
        let mut namespace = Namespace::default();
        let key = "net.ipv4.ip_forward";
        assert_eq!(set_sysctl(&mut namespace, key, "1"), Ok(()));
        assert_eq!(
            set_sysctl(&mut namespace, key, "1"),
            Err(ChangeError::NoEffect)
        );
        let of_link = "net.ipv4.conf.eth0.forwarding";
        assert_eq!(set_sysctl(&mut namespace, of_link, "1"), Ok(()));
        assert_eq!(namespace.sysctls.len(), 2);
        // The kernel copies the value to all interfaces.
        assert_eq!(set_sysctl(&mut namespace, key, "0"), Ok(()));
        assert_eq!(namespace.sysctls.len(), 1);
    }
}
