//! Compares the sysctls of two plans.

use super::RebuildRequired;
use svclab_model::plan::Sysctl;

/// Returns the sysctls to write, in order, to change one list into another.
///
/// Some sysctls change others: `default` and `all` affect interfaces, and forwarding affects many
/// (Linux v6.12, `net/ipv4/devinet.c`, `devinet_conf_proc` and `devinet_sysctl_forward`;
/// `net/ipv6/addrconf.c`, `addrconf_sysctl_forward`). If one of these changes, all sysctls are
/// written again in their order.
///
/// # Errors
///
/// Fails if a sysctl is removed, because its earlier value is unknown.
pub fn diff(
    name: &str,
    current: &[Sysctl],
    wanted: &[Sysctl],
) -> Result<Vec<Sysctl>, RebuildRequired> {
    if current == wanted {
        return Ok(Vec::new());
    }
    let has = |settings: &[Sysctl], key: &str| settings.iter().any(|setting| setting.key == key);
    if let Some(removed) = current.iter().find(|old| !has(wanted, &old.key)) {
        return Err(RebuildRequired::new(format_args!(
            "{} of {name} is no longer set, and its original value is unknown",
            removed.key
        )));
    }
    let changed: Vec<&Sysctl> = wanted.iter().filter(|new| !current.contains(new)).collect();
    let affects_others = |setting: &&Sysctl| {
        setting.key.contains("forward")
            || setting.key.contains(".conf.all.")
            || setting.key.contains(".conf.default.")
    };
    if !changed.iter().any(affects_others) && has_same_order(current, wanted) {
        return Ok(changed.into_iter().cloned().collect());
    }
    let (link_sysctls, global_sysctls): (Vec<&Sysctl>, Vec<&Sysctl>) =
        wanted.iter().partition(|setting| setting.link.is_some());
    Ok(global_sysctls
        .into_iter()
        .chain(link_sysctls)
        .cloned()
        .collect())
}

/// Whether both lists have the same keys in the same order.
fn has_same_order(current: &[Sysctl], wanted: &[Sysctl]) -> bool {
    current.len() == wanted.len()
        && current
            .iter()
            .zip(wanted)
            .all(|(old, new)| old.key == new.key)
}
