//! Compares the interfaces of two plans of a namespace.

use ipnetwork::IpNetwork;

use super::{RebuildRequired, add_remove};
use svclab_model::plan::delta::{AddRemove, LinkChange};
use svclab_model::plan::{Link, LinkKind, Namespace};

/// Returns the changes of a namespace's interfaces. The second value states whether an address is
/// removed or an interface changes between up and down, because the kernel removes routes in these
/// cases.
///
/// # Errors
///
/// Fails if the interfaces differ in number, order or creation parameters.
pub fn diff(
    old_namespace: &Namespace,
    new_namespace: &Namespace,
) -> Result<(Vec<LinkChange>, bool), RebuildRequired> {
    let name = &new_namespace.name;
    let names =
        |ns: &Namespace| -> Vec<String> { ns.links.iter().map(|link| link.name.clone()).collect() };
    if names(old_namespace) != names(new_namespace) {
        return Err(RebuildRequired::new(format_args!(
            "the list of interfaces of {name} changes"
        )));
    }
    let mut changes = Vec::new();
    let mut has_removal = false;
    for (old, new) in old_namespace.links.iter().zip(&new_namespace.links) {
        if old == new {
            continue;
        }
        if !has_same_creation(old, new) {
            return Err(RebuildRequired::new(format_args!(
                "the creation parameters of interface {} of {name} change",
                new.name
            )));
        }
        let addresses = diff_addresses(&old.addresses, &new.addresses);
        let up = (old.down != new.down).then_some(!new.down);
        let mut ports = new_namespace.links.iter();
        let is_disabled =
            |port: &Link| port.bridge.as_ref() == Some(&new.name) && !port.port.forwarding;
        if up.is_some() && ports.any(is_disabled) {
            return Err(RebuildRequired::new(format_args!(
                "the state of the bridge {} of {name} changes, which has disabled ports",
                new.name
            )));
        }
        // The kernel enables the port of an interface that comes up.
        let is_enabled = up == Some(true) && !new.port.forwarding;
        has_removal |= !addresses.remove.is_empty() || up.is_some();
        changes.push(LinkChange {
            name: new.name.clone(),
            addresses,
            up,
            mtu: new.mtu.filter(|_| old.mtu != new.mtu),
            port: (old.port != new.port || is_enabled).then_some(new.port),
        });
    }
    Ok((changes, has_removal))
}

/// Whether the creation parameters of two interfaces are equal.
fn has_same_creation(old: &Link, new: &Link) -> bool {
    old.kind == new.kind
        && old.mac == new.mac
        && old.bridge == new.bridge
        // The kernel's default MTU is unknown. That of a tunnel depends on the interface below.
        && (old.mtu == new.mtu
            || (new.mtu.is_some() && !matches!(new.kind, LinkKind::Vxlan { .. })))
}

/// Returns the addresses to remove and to add. Order matters, because packets are sent with the
/// first address of a subnet.
fn diff_addresses(current: &[IpNetwork], wanted: &[IpNetwork]) -> AddRemove<IpNetwork> {
    let remaining: Vec<&IpNetwork> = current.iter().filter(|old| wanted.contains(old)).collect();
    let keeps_order = wanted.iter().zip(&remaining).all(|(new, old)| new == *old) && {
        // When the first address of a subnet is removed, the kernel removes the others too.
        let removed = current.iter().filter(|old| !wanted.contains(old));
        removed
            .into_iter()
            .all(|gone| !remaining.iter().any(|kept| is_same_subnet(gone, kept)))
    };
    if keeps_order {
        return add_remove(current, wanted);
    }
    AddRemove {
        remove: current.to_vec(),
        add: wanted.to_vec(),
    }
}

fn is_same_subnet(left: &IpNetwork, right: &IpNetwork) -> bool {
    left.prefix() == right.prefix() && left.network() == right.network()
}
