//! Writing kernel settings of a namespace.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::netns::NetNs;
use crate::plan::Sysctl;
use crate::protocol::{Failure, Fault};

/// Writes settings in their order.
///
/// # Errors
///
/// A setting that is not under `net.`, that this kernel lacks or whose value it
/// refuses.
pub fn write<'a>(
    ns: &NetNs,
    name: &str,
    settings: impl Iterator<Item = &'a Sysctl>,
) -> Result<(), Failure> {
    ns.enter(|| {
        for setting in settings {
            let path = path(&setting.key)
                .ok_or_else(|| refused(name, setting, "it is not under `net.`", Fault::Input))?;
            match fs::write(path, &setting.value) {
                Ok(()) => {}
                Err(error) if setting.optional && error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(refused(
                        name,
                        setting,
                        "this kernel has no such setting",
                        Fault::Machine,
                    ));
                }
                Err(error) => return Err(refused(name, setting, &error.to_string(), Fault::Input)),
            }
        }
        Ok(())
    })
    .unwrap_or_else(|error| Err(super::failure::entering(name, &error)))
}

/// Where a setting lies. As `sysctl` does, dots separate and a slash stands for
/// a dot within a name, so that `net.ipv4.conf.flannel/1.rp_filter` is found.
fn path(key: &str) -> Option<PathBuf> {
    if !key.starts_with("net.")
        || key
            .split('.')
            .any(|part| part.is_empty() || part.replace('/', ".").starts_with('.'))
    {
        return None;
    }
    let swapped: String = key
        .chars()
        .map(|letter| match letter {
            '.' => '/',
            '/' => '.',
            other => other,
        })
        .collect();
    Some(PathBuf::from("/proc/sys").join(swapped))
}

fn refused(name: &str, setting: &Sysctl, why: &str, fault: Fault) -> Failure {
    Failure {
        fault,
        message: format!(
            "cannot set {} = {} in {name}: {why}",
            setting.key, setting.value
        ),
        remedy: (fault == Fault::Machine && setting.key.starts_with("net.bridge."))
            .then(|| "run `modprobe br_netfilter` as root".to_owned()),
        rejected: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_paths_under_net_only() {
        let at = |key| path(key).map(|path| path.to_string_lossy().into_owned());
        assert_eq!(
            at("net.ipv4.conf.flannel/1.rp_filter").as_deref(),
            Some("/proc/sys/net/ipv4/conf/flannel.1/rp_filter")
        );
        for outside in [
            "vm.swappiness",
            "net",
            "net..core",
            "net.//.//.vm.swappiness",
            "net.ipv4.",
            "/net.ipv4",
        ] {
            assert_eq!(at(outside), None, "{outside}");
        }
    }
}
