//! Edits sysctls, rules, sets and elements in the namespaces of a plan.

use super::change::ChangeError;
use svclab_model::plan::{Backend, Namespace, Plan, Sysctl};
use svclab_ruleset::nft::Ruleset;

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

/// Deletes a rule, given as `CHAIN NUMBER`, after all commands of the script.
///
/// # Errors
///
/// Returns an error if the namespace has no rules of this iptables variant and table.
pub fn delete_rule(
    namespace: &mut Namespace,
    backend: Backend,
    v6: bool,
    table: &str,
    rule: &str,
) -> Result<(), ChangeError> {
    let mut variants = namespace
        .iptables
        .iter_mut()
        .chain(&mut namespace.other_iptables);
    let variant = variants.find(|rules| rules.backend == backend);
    let rules = variant.ok_or_else(|| ChangeError::Missing(namespace.name.clone()))?;
    let text = if v6 { &mut rules.v6 } else { &mut rules.v4 };
    let begins = text
        .match_indices(&format!("*{table}\n"))
        .map(|(start, _)| start)
        .filter(|start| *start == 0 || text.as_bytes()[start - 1] == b'\n')
        .last();
    let end = begins.and_then(|start| Some(start + text[start..].find("\nCOMMIT")? + 1));
    let end = end.ok_or_else(|| ChangeError::Missing(namespace.name.clone()))?;
    text.insert_str(end, &format!("-D {rule}\n"));
    Ok(())
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
    let line = format!("add {set} {entry}");
    let matches = |text: &str| {
        let rest = text.strip_prefix(&line);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    let (deleted, remaining): (Vec<&str>, Vec<&str>) = namespace
        .ipset
        .lines()
        .partition(|own| matches(own.trim_end()));
    if deleted.is_empty() {
        return Err(ChangeError::Missing(namespace.name.clone()));
    }
    namespace.ipset = remaining.iter().flat_map(|line| [*line, "\n"]).collect();
    Ok(())
}

/// Deletes an nftables rule by its number, from 1.
///
/// # Errors
///
/// Returns an error if the rule does not exist or the ruleset cannot be parsed.
pub fn delete_nft_rule(
    namespace: &mut Namespace,
    table: &str,
    chain: &str,
    number: u32,
) -> Result<(), ChangeError> {
    let unreadable = |_| ChangeError::Unreadable(namespace.name.clone());
    let mut ruleset: Ruleset = svclab_ruleset::nft::parse(&namespace.nft).map_err(unreadable)?;
    let mut tables = ruleset.tables.iter_mut();
    let found =
        tables.find(|candidate| format!("{} {}", candidate.family, candidate.name) == table);
    let found = found.and_then(|table| {
        table
            .chains
            .iter_mut()
            .find(|candidate| candidate.name == chain)
    });
    let rules = found.map(|chain| &mut chain.rules);
    let index = usize::try_from(number)
        .ok()
        .and_then(|at| at.checked_sub(1));
    match rules.zip(index) {
        Some((rules, at)) if at < rules.len() => drop(rules.remove(at)),
        _ => return Err(ChangeError::Missing(namespace.name.clone())),
    }
    namespace.nft = ruleset.to_string();
    Ok(())
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
    let unreadable = |_| ChangeError::Unreadable(namespace.name.clone());
    let mut ruleset: Ruleset = svclab_ruleset::nft::parse(&namespace.nft).map_err(unreadable)?;
    let mut tables = ruleset.tables.iter_mut();
    let found =
        tables.find(|candidate| format!("{} {}", candidate.family, candidate.name) == table);
    let found = found.and_then(|table| {
        table
            .sets
            .iter_mut()
            .find(|candidate| candidate.name == set)
    });
    let elements = found.map(|set| &mut set.elements);
    let elements = elements.ok_or_else(|| ChangeError::Missing(namespace.name.clone()))?;
    let before = elements.len();
    elements.retain(|element| element.key != key);
    if elements.len() == before {
        return Err(ChangeError::Missing(namespace.name.clone()));
    }
    namespace.nft = ruleset.to_string();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::plan::Iptables;

    #[test]
    fn delete_rule_appends_after_all_commands() {
        let mut namespace = Namespace {
            name: "node-1".to_owned(),
            iptables: Some(Iptables {
                backend: Backend::Legacy,
                v4: "*nat\n-A A -j RETURN\nCOMMIT\n*filter\nCOMMIT\n*nat\n-A B -j A\nCOMMIT\n"
                    .to_owned(),
                v6: String::new(),
            }),
            ..Namespace::default()
        };
        let deleted = delete_rule(&mut namespace, Backend::Legacy, false, "nat", "A 1");
        assert_eq!(deleted, Ok(()));
        let rules = namespace.iptables.clone().expect("rules");
        assert!(
            rules.v4.ends_with("*nat\n-A B -j A\n-D A 1\nCOMMIT\n"),
            "{}",
            rules.v4
        );
        let absent = Err(ChangeError::Missing("node-1".to_owned()));
        for (backend, v6, table) in [
            (Backend::Nft, false, "nat"),
            (Backend::Legacy, true, "nat"),
            (Backend::Legacy, false, "raw"),
        ] {
            assert_eq!(
                delete_rule(&mut namespace, backend, v6, table, "A 1"),
                absent
            );
        }
    }

    #[test]
    fn delete_set_entry_keeps_entries_with_same_prefix() {
        let mut namespace = Namespace {
            ipset: "create S hash:net\nadd S 10.0.0.0/8\nadd S 10.0.0.0/81 comment x\n".to_owned(),
            ..Namespace::default()
        };
        assert_eq!(delete_set_entry(&mut namespace, "S", "10.0.0.0/8"), Ok(()));
        assert_eq!(
            namespace.ipset,
            "create S hash:net\nadd S 10.0.0.0/81 comment x\n"
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
        assert_eq!(set_sysctl(&mut namespace, key, "0"), Ok(()));
        assert_eq!(namespace.sysctls.len(), 1);
    }
}
