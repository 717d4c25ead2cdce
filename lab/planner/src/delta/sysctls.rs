//! Compares the sysctls of two plans.

use super::Rebuild;
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
pub fn between(name: &str, there: &[Sysctl], wanted: &[Sysctl]) -> Result<Vec<Sysctl>, Rebuild> {
    if there == wanted {
        return Ok(Vec::new());
    }
    let has = |settings: &[Sysctl], key: &str| settings.iter().any(|setting| setting.key == key);
    if let Some(gone) = there.iter().find(|old| !has(wanted, &old.key)) {
        return Err(Rebuild::because(format_args!(
            "{} of {name} goes back to what it was",
            gone.key
        )));
    }
    let changed: Vec<&Sysctl> = wanted.iter().filter(|new| !there.contains(new)).collect();
    let reaches = |setting: &&Sysctl| {
        setting.key.contains("forward")
            || setting.key.contains(".conf.all.")
            || setting.key.contains(".conf.default.")
    };
    if !changed.iter().any(reaches) && same_order(there, wanted) {
        return Ok(changed.into_iter().cloned().collect());
    }
    let (of_links, others): (Vec<&Sysctl>, Vec<&Sysctl>) =
        wanted.iter().partition(|setting| setting.link.is_some());
    Ok(others.into_iter().chain(of_links).cloned().collect())
}

/// Whether both lists have the same keys in the same order.
fn same_order(there: &[Sysctl], wanted: &[Sysctl]) -> bool {
    there.len() == wanted.len()
        && there
            .iter()
            .zip(wanted)
            .all(|(old, new)| old.key == new.key)
}
