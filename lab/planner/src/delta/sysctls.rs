//! Settings that change.

use super::Rebuild;
use svclab_model::plan::Sysctl;

/// What to write, in order, to come from one list of settings to another.
///
/// Some settings reach others: `default` and `all` reach interfaces, forwarding
/// reaches much (Linux v6.12, `net/ipv4/devinet.c`, `devinet_conf_proc` and
/// `devinet_sysctl_forward`; `net/ipv6/addrconf.c`, `addrconf_sysctl_forward`).
/// When one of those changes, all are written again in their order.
///
/// # Errors
///
/// When a setting goes: what it was before is not known.
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

/// Whether the same keys come in the same order, once each.
fn same_order(there: &[Sysctl], wanted: &[Sysctl]) -> bool {
    there.len() == wanted.len()
        && there
            .iter()
            .zip(wanted)
            .all(|(old, new)| old.key == new.key)
}
