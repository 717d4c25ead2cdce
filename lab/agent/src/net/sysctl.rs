//! Writes sysctls of a namespace.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_diagnostic::shortage;
use svclab_model::plan::Sysctl;
use svclab_model::protocol::{Failure, FailureKind, SYSCTL};

/// Writes sysctls in order. A failure does not stop the remaining writes, so that the error names
/// all rejected sysctls.
///
/// # Errors
///
/// When a sysctl is not under `net.`, is missing in this kernel, or its value is rejected.
pub(crate) fn write<'a>(
    ns: &NetNs,
    name: &str,
    settings: impl Iterator<Item = &'a Sysctl>,
) -> Result<(), Failure> {
    write_each(ns, name, settings, |_| ())
}

/// Writes sysctls, and calls `before` in the namespace before each write.
fn write_each<'a>(
    ns: &NetNs,
    name: &str,
    settings: impl Iterator<Item = &'a Sysctl>,
    mut before: impl FnMut(&Sysctl),
) -> Result<(), Failure> {
    let write_all = || {
        let mut first: Option<Failure> = None;
        for setting in settings {
            before(setting);
            let Err(failure) = write_one(name, setting) else {
                continue;
            };
            match first.as_mut().and_then(|first| first.rejected.as_mut()) {
                Some(rejected) => rejected.related_lines.push(render(setting)),
                None => {
                    first = Some(failure::with_rejected_input(
                        failure,
                        name,
                        SYSCTL,
                        render(setting),
                    ));
                }
            }
        }
        first.map_or(Ok(()), Err)
    };
    ns.enter(write_all)
        .unwrap_or_else(|error| Err(failure::cannot_enter(name, &error)))
}

/// For each list of sysctls, which of its writes change nothing in a new namespace.
type NeedlessWrites = HashMap<Vec<Sysctl>, Rc<[bool]>>;

thread_local! {
    /// `None` unless all new namespaces start with equal values.
    static NEEDLESS_WRITES: RefCell<Option<NeedlessWrites>> = const { RefCell::new(None) };
}

/// Records that all new namespaces of this agent start with equal values, as in a guest. On a host,
/// they start with values that any program may change (Linux v6.12, `net/ipv4/devinet.c`,
/// `devinet_init_net`).
pub(crate) fn assume_equal_namespaces() {
    NEEDLESS_WRITES.set(Some(HashMap::new()));
}

/// Writes sysctls in order, in a namespace in which none was written yet. If all new namespaces are
/// equal, writes that changed nothing in an earlier namespace with the same list are skipped.
///
/// # Errors
///
/// See [`write`].
pub(crate) fn write_first(ns: &NetNs, name: &str, settings: &[&Sysctl]) -> Result<(), Failure> {
    let list: Vec<Sysctl> = settings.iter().map(|one| (*one).clone()).collect();
    let known = NEEDLESS_WRITES.with_borrow(|known| Some(known.as_ref()?.get(&list).cloned()));
    let settings = settings.iter().copied();
    match known {
        None => write(ns, name, settings),
        Some(Some(needless)) => {
            let needed = settings
                .zip(needless.iter())
                .filter(|(_, is_needless)| !**is_needless);
            write(ns, name, needed.map(|(setting, _)| setting))
        }
        Some(None) => {
            let mut needless = Vec::new();
            write_each(ns, name, settings, |setting| {
                needless.push(has_value(setting));
            })?;
            NEEDLESS_WRITES.with_borrow_mut(|known| {
                known
                    .as_mut()
                    .map(|known| known.insert(list, needless.into()))
            });
            Ok(())
        }
    }
}

/// Whether a sysctl of the calling thread's namespace has the planned value, or is optional and does
/// not exist.
fn has_value(setting: &Sysctl) -> bool {
    match read_value(&setting.key) {
        Ok(value) => value
            .split_whitespace()
            .eq(setting.value.split_whitespace()),
        Err(error) => setting.optional && error.kind() == io::ErrorKind::NotFound,
    }
}

/// Renders a sysctl as an argument of `sysctl -w`.
fn render(setting: &Sysctl) -> String {
    format!("{}={}", setting.key, setting.value)
}

fn write_one(name: &str, setting: &Sysctl) -> Result<(), Failure> {
    let path = sysctl_path(&setting.key).ok_or_else(|| {
        cannot_set(
            name,
            setting,
            "the sysctl is not under `net.`",
            FailureKind::Input,
        )
    })?;
    // Writing no bytes changes nothing. A blank line clears a list.
    let value = match setting.value.as_str() {
        "" => "\n",
        value => value,
    };
    let Err(error) = fs::write(path, value) else {
        return Ok(());
    };
    if error.kind() == io::ErrorKind::NotFound {
        if setting.optional {
            return Ok(());
        }
        let why = "this kernel has no such sysctl";
        return Err(cannot_set(name, setting, why, FailureKind::Machine));
    }
    if shortage::remedy(&error).is_some() {
        let message = format!(
            "cannot set {} = {} in {name}: {error}",
            setting.key, setting.value
        );
        return Err(failure::host(message, &error));
    }
    Err(cannot_set(
        name,
        setting,
        &error.to_string(),
        FailureKind::Input,
    ))
}

/// Returns the sysctls of interfaces whose values the interfaces do not already have. A new
/// interface starts with the values of `default` (Linux v6.12, `net/ipv4/devinet.c`,
/// `inetdev_init`; `net/ipv6/addrconf.c`, `ipv6_add_dev`). Most interface sysctls of a plan equal
/// those of `default`.
pub(crate) fn interface_sysctls(settings: &[Sysctl]) -> impl Iterator<Item = &Sysctl> {
    let inherited = initial_values(settings);
    settings.iter().filter(move |setting| {
        setting.link.is_some()
            && split_conf_key(&setting.key)
                .and_then(|(family, _, last)| inherited.get(&(family, last)))
                != Some(&setting.value.as_str())
    })
}

/// Returns the initial values of a new interface by family and last part of the name, as far as
/// these sysctls alone determine them.
fn initial_values(settings: &[Sysctl]) -> HashMap<(&str, &str), &str> {
    let mut inherited = HashMap::new();
    for setting in settings.iter().filter(|setting| setting.link.is_none()) {
        match split_conf_key(&setting.key) {
            // Setting `forwarding` makes the kernel set other sysctls too, depending on the kernel
            // version.
            Some((family, _, "forwarding")) => inherited.retain(|(of, _), _| *of != family),
            Some((family, "default", last)) => {
                inherited.insert((family, last), setting.value.as_str());
            }
            // The kernel copies some sysctls from `all` to `default`.
            Some((family, "all", last)) => drop(inherited.remove(&(family, last))),
            None if setting.key == "net.ipv4.ip_forward" => {
                inherited.retain(|(of, _), _| *of != "ipv4");
            }
            Some(_) | None => {}
        }
    }
    inherited
}

/// Splits a name such as `net.ipv4.conf.eth0.rp_filter` into family, interface and last part.
fn split_conf_key(key: &str) -> Option<(&str, &str, &str)> {
    let (family, rest) = key.strip_prefix("net.")?.split_once(".conf.")?;
    let (dev, last) = rest.rsplit_once('.')?;
    Some((family, dev, last))
}

/// Returns the path of a sysctl. As in `sysctl`, dots separate parts, and a slash replaces a dot
/// within a part, so that `net.ipv4.conf.flannel/1.rp_filter` is found.
pub(crate) fn sysctl_path(key: &str) -> Option<PathBuf> {
    const ROOT: &str = "/proc/sys/";
    let mut parts = key.split('.');
    let is_invalid = |part: &str| part.is_empty() || part.starts_with('/');
    if !key.starts_with("net.") || parts.any(is_invalid) {
        return None;
    }
    let mut path = String::with_capacity(ROOT.len() + key.len());
    path.push_str(ROOT);
    path.extend(key.chars().map(|letter| match letter {
        '.' => '/',
        '/' => '.',
        character => character,
    }));
    Some(path.into())
}

/// Returns the value of a sysctl in the namespace of the calling thread, with the final line break.
///
/// # Errors
///
/// When the sysctl is not under `net.`, or cannot be read, as when this kernel lacks it.
pub(crate) fn read_value(key: &str) -> io::Result<String> {
    fs::read_to_string(sysctl_path(key).ok_or(io::ErrorKind::InvalidInput)?)
}

fn cannot_set(name: &str, setting: &Sysctl, why: &str, fault: FailureKind) -> Failure {
    Failure {
        kind: fault,
        message: format!(
            "cannot set {} = {} in {name}: {why}",
            setting.key, setting.value
        ),
        remedy: remedy(&setting.key)
            .filter(|_| fault == FailureKind::Machine)
            .map(str::to_owned),
        rejected: None,
    }
}

/// Returns the remedy for sysctls that a kernel may lack.
fn remedy(key: &str) -> Option<&'static str> {
    [
        ("net.bridge.", "run `modprobe br_netfilter` as root"),
        (
            "net.ipv4.vs.",
            "run `modprobe ip_vs` as root; a kernel built without IPVS cannot run this lab",
        ),
    ]
    .iter()
    .find(|(prefix, _)| key.starts_with(prefix))
    .map(|(_, remedy)| *remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(key: &str, value: &str, link: Option<&str>) -> Sysctl {
        Sysctl {
            key: key.to_owned(),
            value: value.to_owned(),
            link: link.map(str::to_owned),
            optional: false,
        }
    }

    #[test]
    fn sysctl_with_inherited_value_is_not_written() {
        let (v4, v6) = ("net.ipv4.conf", "net.ipv6.conf");
        let settings = [
            setting("net.ipv4.ip_forward", "1", None),
            setting(&format!("{v4}.all.rp_filter"), "1", None),
            setting(&format!("{v4}.default.rp_filter"), "0", None),
            setting(&format!("{v4}.default.proxy_arp"), "0", None),
            setting(&format!("{v4}.default.arp_ignore"), "0", None),
            setting(&format!("{v4}.all.arp_ignore"), "0", None),
            setting(&format!("{v6}.default.accept_ra"), "0", None),
            setting(&format!("{v6}.all.forwarding"), "1", None),
            setting(&format!("{v4}.flannel/1.rp_filter"), "0", Some("flannel.1")),
            setting(&format!("{v4}.eth0.rp_filter"), "2", Some("eth0")),
            setting(&format!("{v4}.eth0.proxy_arp"), "0", Some("eth0")),
            setting(&format!("{v4}.eth0.arp_ignore"), "0", Some("eth0")),
            setting(&format!("{v4}.eth0.log_martians"), "0", Some("eth0")),
            setting(&format!("{v6}.eth0.accept_ra"), "0", Some("eth0")),
            setting("net.mpls.eth0.input", "1", Some("eth0")),
        ];
        let written: Vec<&str> = interface_sysctls(&settings)
            .map(|s| s.key.as_str())
            .collect();
        assert_eq!(
            written,
            [
                "net.ipv4.conf.eth0.rp_filter",
                "net.ipv4.conf.eth0.arp_ignore",
                "net.ipv4.conf.eth0.log_martians",
                "net.ipv6.conf.eth0.accept_ra",
                "net.mpls.eth0.input",
            ]
        );
    }

    #[test]
    fn sysctl_key_outside_net_has_no_path() {
        let rendered_path = |key| sysctl_path(key).map(|path| path.to_string_lossy().into_owned());
        assert_eq!(
            rendered_path("net.ipv4.conf.flannel/1.rp_filter").as_deref(),
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
            assert_eq!(rendered_path(outside), None, "{outside}");
        }
    }
}
