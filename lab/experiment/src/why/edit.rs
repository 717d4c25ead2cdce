//! Edits sysctls, rules, sets and elements in the namespaces of a plan.

use super::change::Unchangeable;
use svclab_model::plan::{Backend, Namespace, Plan, Sysctl};
use svclab_ruleset::nft::Ruleset;

/// Returns a namespace of a plan.
///
/// # Errors
///
/// Returns an error if no namespace has this name.
pub fn namespace<'p>(plan: &'p mut Plan, name: &str) -> Result<&'p mut Namespace, Unchangeable> {
    let mut all = plan.namespaces.iter_mut();
    all.find(|namespace| namespace.name == name)
        .ok_or_else(|| Unchangeable::Absent(name.to_owned()))
}

/// Sets a sysctl.
///
/// # Errors
///
/// Returns an error if the sysctl already has this value.
pub fn set(namespace: &mut Namespace, key: &str, value: &str) -> Result<(), Unchangeable> {
    let mut known = namespace.sysctls.iter_mut();
    if let Some(known) = known.rfind(|setting| setting.key == key) {
        if known.value == value {
            return Err(Unchangeable::Already);
        }
        value.clone_into(&mut known.value);
        return Ok(());
    }
    // A sysctl of one interface is set once the interface exists.
    let of = key
        .strip_prefix("net.ipv4.conf.")
        .and_then(|key| key.split('.').next());
    let link = of.map(|of| of.replace('/', "."));
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
pub fn without_rule(
    namespace: &mut Namespace,
    backend: Backend,
    v6: bool,
    table: &str,
    rule: &str,
) -> Result<(), Unchangeable> {
    let mut both = namespace.iptables.iter_mut().chain(&mut namespace.beside);
    let own = both.find(|rules| rules.backend == backend);
    let rules = own.ok_or_else(|| Unchangeable::Absent(namespace.name.clone()))?;
    let text = if v6 { &mut rules.v6 } else { &mut rules.v4 };
    let begins = text
        .match_indices(&format!("*{table}\n"))
        .map(|(at, _)| at)
        .filter(|at| *at == 0 || text.as_bytes()[at - 1] == b'\n')
        .last();
    let end = begins.and_then(|at| Some(at + text[at..].find("\nCOMMIT")? + 1));
    let end = end.ok_or_else(|| Unchangeable::Absent(namespace.name.clone()))?;
    text.insert_str(end, &format!("-D {rule}\n"));
    Ok(())
}

/// Deletes an entry of an ipset.
///
/// # Errors
///
/// Returns an error if the set or entry does not exist.
pub fn without_entry(
    namespace: &mut Namespace,
    set: &str,
    entry: &str,
) -> Result<(), Unchangeable> {
    let line = format!("add {set} {entry}");
    let named = |own: &str| {
        let rest = own.strip_prefix(&line);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    let (gone, left): (Vec<&str>, Vec<&str>) = namespace
        .ipset
        .lines()
        .partition(|own| named(own.trim_end()));
    if gone.is_empty() {
        return Err(Unchangeable::Absent(namespace.name.clone()));
    }
    namespace.ipset = left.iter().flat_map(|line| [*line, "\n"]).collect();
    Ok(())
}

/// Deletes an nftables rule by its number, from 1.
///
/// # Errors
///
/// Returns an error if the rule does not exist or the ruleset cannot be parsed.
pub fn without_native_rule(
    namespace: &mut Namespace,
    table: &str,
    chain: &str,
    number: u32,
) -> Result<(), Unchangeable> {
    let unreadable = |_| Unchangeable::Unreadable(namespace.name.clone());
    let mut ruleset: Ruleset = svclab_ruleset::nft::parse(&namespace.nft).map_err(unreadable)?;
    let mut tables = ruleset.tables.iter_mut();
    let found = tables.find(|own| format!("{} {}", own.family, own.name) == table);
    let found = found.and_then(|table| table.chains.iter_mut().find(|own| own.name == chain));
    let rules = found.map(|chain| &mut chain.rules);
    let at = usize::try_from(number)
        .ok()
        .and_then(|at| at.checked_sub(1));
    match rules.zip(at) {
        Some((rules, at)) if at < rules.len() => drop(rules.remove(at)),
        _ => return Err(Unchangeable::Absent(namespace.name.clone())),
    }
    namespace.nft = ruleset.to_string();
    Ok(())
}

/// Deletes an element of an nftables set or map.
///
/// # Errors
///
/// Returns an error if the element does not exist or the ruleset cannot be parsed.
pub fn without_element(
    namespace: &mut Namespace,
    table: &str,
    set: &str,
    key: &str,
) -> Result<(), Unchangeable> {
    let unreadable = |_| Unchangeable::Unreadable(namespace.name.clone());
    let mut ruleset: Ruleset = svclab_ruleset::nft::parse(&namespace.nft).map_err(unreadable)?;
    let mut tables = ruleset.tables.iter_mut();
    let found = tables.find(|own| format!("{} {}", own.family, own.name) == table);
    let found = found.and_then(|table| table.sets.iter_mut().find(|own| own.name == set));
    let elements = found.map(|set| &mut set.elements);
    let elements = elements.ok_or_else(|| Unchangeable::Absent(namespace.name.clone()))?;
    let before = elements.len();
    elements.retain(|element| element.key != key);
    if elements.len() == before {
        return Err(Unchangeable::Absent(namespace.name.clone()));
    }
    namespace.nft = ruleset.to_string();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::plan::Iptables;

    #[test]
    fn a_rule_goes_after_all_that_was_written() {
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
        let gone = without_rule(&mut namespace, Backend::Legacy, false, "nat", "A 1");
        assert_eq!(gone, Ok(()));
        let rules = namespace.iptables.clone().expect("rules");
        assert!(
            rules.v4.ends_with("*nat\n-A B -j A\n-D A 1\nCOMMIT\n"),
            "{}",
            rules.v4
        );
        let absent = Err(Unchangeable::Absent("node-1".to_owned()));
        for (backend, v6, table) in [
            (Backend::Nft, false, "nat"),
            (Backend::Legacy, true, "nat"),
            (Backend::Legacy, false, "raw"),
        ] {
            assert_eq!(
                without_rule(&mut namespace, backend, v6, table, "A 1"),
                absent
            );
        }
    }

    #[test]
    fn an_entry_goes_and_no_other_that_begins_like_it() {
        let mut namespace = Namespace {
            ipset: "create S hash:net\nadd S 10.0.0.0/8\nadd S 10.0.0.0/81 comment x\n".to_owned(),
            ..Namespace::default()
        };
        assert_eq!(without_entry(&mut namespace, "S", "10.0.0.0/8"), Ok(()));
        assert_eq!(
            namespace.ipset,
            "create S hash:net\nadd S 10.0.0.0/81 comment x\n"
        );
        assert!(without_entry(&mut namespace, "S", "10.0.0.0/8").is_err());
    }

    #[test]
    fn a_setting_has_one_value() {
        let mut namespace = Namespace::default();
        let key = "net.ipv4.ip_forward";
        assert_eq!(set(&mut namespace, key, "1"), Ok(()));
        assert_eq!(set(&mut namespace, key, "1"), Err(Unchangeable::Already));
        assert_eq!(set(&mut namespace, key, "0"), Ok(()));
        assert_eq!(namespace.sysctls.len(), 1);
    }
}
