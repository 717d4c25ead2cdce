//! Taking single things away from what namespaces of a plan hold.

use super::change::Unchangeable;
use crate::plan::{Backend, Namespace, Plan, Sysctl};
use crate::rules::nft::Ruleset;

/// A namespace of a plan.
///
/// # Errors
///
/// When there is none of that name.
pub fn namespace<'p>(plan: &'p mut Plan, name: &str) -> Result<&'p mut Namespace, Unchangeable> {
    let mut all = plan.namespaces.iter_mut();
    all.find(|namespace| namespace.name == name)
        .ok_or_else(|| Unchangeable::Absent(name.to_owned()))
}

/// Gives a setting another value.
///
/// # Errors
///
/// When it has that value.
pub fn set(namespace: &mut Namespace, key: &str, value: &str) -> Result<(), Unchangeable> {
    let mut known = namespace.sysctls.iter_mut();
    if let Some(known) = known.rfind(|setting| setting.key == key) {
        if known.value == value {
            return Err(Unchangeable::Already);
        }
        value.clone_into(&mut known.value);
        return Ok(());
    }
    // What is one interface's is there when that is.
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

/// Deletes a rule by its number, after all that was written: `CHAIN NUMBER`.
///
/// # Errors
///
/// When the namespace has no such iptables.
pub fn without_rule(
    namespace: &mut Namespace,
    backend: Backend,
    v6: bool,
    table: &str,
    rule: &str,
) -> Result<(), Unchangeable> {
    let own = namespace.iptables.as_mut();
    let own = own.filter(|rules| rules.backend == backend);
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

/// Deletes an entry of a set.
///
/// # Errors
///
/// When there are no sets.
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

/// Deletes an entry of a set or map of nftables.
///
/// # Errors
///
/// When there is none.
pub fn without_element(
    namespace: &mut Namespace,
    table: &str,
    set: &str,
    key: &str,
) -> Result<(), Unchangeable> {
    let unreadable = |_| Unchangeable::Unreadable(namespace.name.clone());
    let mut ruleset: Ruleset = crate::dump::nft::parse(&namespace.nft).map_err(unreadable)?;
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
