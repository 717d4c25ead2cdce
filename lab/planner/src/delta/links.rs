//! Compares the interfaces of two plans of a namespace.

use ipnetwork::IpNetwork;

use super::{Rebuild, swap};
use svclab_model::plan::delta::{LinkChange, Swap};
use svclab_model::plan::{Link, Namespace};

/// Returns the changes of a namespace's interfaces. The second value states whether an address is
/// removed or an interface changes between up and down, because the kernel removes routes in these
/// cases.
///
/// # Errors
///
/// Fails if the interfaces differ in number, order or creation parameters.
pub fn between(there: &Namespace, wanted: &Namespace) -> Result<(Vec<LinkChange>, bool), Rebuild> {
    let name = &wanted.name;
    let names =
        |ns: &Namespace| -> Vec<String> { ns.links.iter().map(|link| link.name.clone()).collect() };
    if names(there) != names(wanted) {
        return Err(Rebuild::because(format_args!(
            "{name} gets other interfaces"
        )));
    }
    let mut changes = Vec::new();
    let mut went = false;
    for (old, new) in there.links.iter().zip(&wanted.links) {
        if old == new {
            continue;
        }
        if !made_alike(old, new) {
            return Err(Rebuild::because(format_args!(
                "the interface {} of {name} is made otherwise",
                new.name
            )));
        }
        let addresses = addresses(&old.addresses, &new.addresses);
        let up = (old.down != new.down).then_some(!new.down);
        went |= !addresses.remove.is_empty() || up.is_some();
        changes.push(LinkChange {
            name: new.name.clone(),
            addresses,
            up,
            mtu: new.mtu.filter(|_| old.mtu != new.mtu),
        });
    }
    Ok((changes, went))
}

/// Whether the creation parameters of two interfaces are equal.
fn made_alike(old: &Link, new: &Link) -> bool {
    old.kind == new.kind
        && old.mac == new.mac
        && old.bridge == new.bridge
        && old.hairpin == new.hairpin
        // The kernel's default MTU is unknown.
        && (old.mtu == new.mtu || new.mtu.is_some())
}

/// Returns the addresses to remove and to add. Order matters, because packets are sent with the
/// first address of a subnet.
fn addresses(there: &[IpNetwork], wanted: &[IpNetwork]) -> Swap<IpNetwork> {
    let stay: Vec<&IpNetwork> = there.iter().filter(|old| wanted.contains(old)).collect();
    let in_place = wanted.iter().zip(&stay).all(|(new, old)| new == *old) && {
        // When the first address of a subnet is removed, the kernel removes the others too.
        let gone = there.iter().filter(|old| !wanted.contains(old));
        gone.into_iter()
            .all(|gone| !stay.iter().any(|kept| of_one_subnet(gone, kept)))
    };
    if in_place {
        return swap(there, wanted);
    }
    Swap {
        remove: there.to_vec(),
        add: wanted.to_vec(),
    }
}

fn of_one_subnet(one: &IpNetwork, other: &IpNetwork) -> bool {
    one.prefix() == other.prefix() && one.network() == other.network()
}
