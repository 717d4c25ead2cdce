//! Renames interfaces of a plan to their names in a dump.

use svclab_model::plan::{LinkKind, Plan};

/// Renames an interface of a namespace everywhere in the plan.
pub fn rename_link(plan: &mut Plan, node: &str, old: &str, new: &str) {
    let rename_if_old = |name: &mut String| {
        if name == old {
            new.clone_into(name);
        }
    };
    for namespace in &mut plan.namespaces {
        if namespace.name != node {
            for link in &mut namespace.links {
                if let LinkKind::Veth { namespace, peer } = &mut link.kind
                    && namespace == node
                {
                    rename_if_old(peer);
                }
            }
            continue;
        }
        for link in &mut namespace.links {
            rename_if_old(&mut link.name);
            if let Some(bridge) = &mut link.bridge {
                rename_if_old(bridge);
            }
            if let LinkKind::Vxlan { dev, .. } = &mut link.kind {
                rename_if_old(dev);
            }
        }
        let routes = namespace.routes.iter_mut().map(|route| &mut route.dev);
        let neighbours = namespace
            .neighbours
            .iter_mut()
            .map(|neighbour| &mut neighbour.dev);
        let forwarding = namespace.forwarding.iter_mut().map(|entry| &mut entry.dev);
        for dev in routes.chain(neighbours).chain(forwarding) {
            rename_if_old(dev);
        }
        for setting in &mut namespace.sysctls {
            if let Some(link) = &mut setting.link
                && link == old
            {
                let (from, to) = (sysctl_link_name(old), sysctl_link_name(new));
                let from = format!(".{from}.");
                setting.key = setting.key.replacen(&from, &format!(".{to}."), 1);
                new.clone_into(link);
            }
        }
    }
}

/// Returns the interface name as sysctl keys contain it.
pub fn sysctl_link_name(dev: &str) -> String {
    dev.replace('.', "/")
}
