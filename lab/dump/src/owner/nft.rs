//! Finds the owners of nftables objects by their names and comments.

use crate::difference::Owner;
use svclab_model::plan::NFTABLES_TABLE;

/// Returns the owner of a chain, set or map by its name: a service or, in kube-proxy's table,
/// kube-proxy. `None` for other names.
#[must_use]
pub fn chain_owner(table: &str, name: &str) -> Option<Owner> {
    let is_kube_proxys = table
        .split_once(' ')
        .is_some_and(|(_, name)| name == NFTABLES_TABLE);
    let component = is_kube_proxys.then(|| Owner::Component("kube-proxy".to_owned()));
    service_in_name(name).or(component)
}

/// Returns the owner of an element of a set or map: the service in its comment or in the name of
/// its target chain. Without a service, the owner of the set; `None` if the set has none.
#[must_use]
pub fn element_owner(table: &str, set: &str, element: &str) -> Option<Owner> {
    if let Some((_, rest)) = element.split_once(" comment \"")
        && let Some((name, _)) = rest.split_once('"')
        && name.contains('/')
    {
        return Some(Owner::Service(name.to_owned()));
    }
    let target = element.split_once(" : goto ").map(|(_, chain)| chain);
    let service = target.and_then(service_in_name);
    service.or_else(|| chain_owner(table, set))
}

/// Returns the service port in a name such as `service-HASH-default/web/tcp/http`.
fn service_in_name(name: &str) -> Option<Owner> {
    let (_, rest) = name.split_once('-')?;
    let (_, rest) = rest.split_once('-')?;
    let rest = rest.split_once("__").map_or(rest, |(service, _)| service);
    let parts: Vec<&str> = rest.split('/').collect();
    match parts.as_slice() {
        [namespace, service, _, ""] => Some(Owner::Service(format!("{namespace}/{service}"))),
        [namespace, service, _, port] => {
            Some(Owner::Service(format!("{namespace}/{service}:{port}")))
        }
        _ => None,
    }
}
