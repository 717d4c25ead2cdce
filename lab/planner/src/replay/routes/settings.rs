//! Finds the settings of a route that a replay does not build.

use super::super::links::mtu;
use super::super::report::{FileLine, OmittedItem, ReplayReport};
use svclab_dump::NodeDump;
use svclab_ruleset::route::Route;
use svclab_ruleset::text::attributes::Attributes;
use svclab_ruleset::tool::Format;

/// Settings that change packets without changing their path, with what differs in the lab.
const SETTINGS: [(&str, &str); 3] = [
    ("mtu", "larger packets take the route in one piece"),
    ("advmss", "larger TCP segments take the route"),
    ("hoplimit", "packets of the node start with another TTL"),
];

/// TTL of packets without a setting (Linux v6.12, `include/net/ip.h`, `IPDEFTTL`).
const DEFAULT_TTL: u32 = 64;

/// Checks that the kernel uses the route, or a next hop of it, for all packets to its destination.
///
/// # Errors
///
/// Returns the reason if a replay does not support the route.
pub(super) fn check_selectors(attributes: &Attributes) -> Result<(), &'static str> {
    let has_any = |names: [&str; 2]| names.into_iter().any(|name| attributes.has(name));
    if has_any(["encap", "from"]) {
        return Err("svclab does not support `encap` and `from` in routes");
    }
    if has_any(["tos", "dsfield"]) {
        return Err("svclab does not support `tos` in routes");
    }
    Ok(())
}

/// Lists the settings of a replayed route that are not built.
pub(super) fn list_settings(route: &Route, dump: &NodeDump, report: &mut ReplayReport) {
    for (name, affects) in SETTINGS {
        let Some(value) = route.attributes.get(name) else {
            continue;
        };
        if has_no_effect(route, dump, name, value) {
            continue;
        }
        let location = FileLine::in_dump(dump, Format::Routes(route.ip), route.line);
        let description = format!("`{name} {value}` of the route to {}", route.to);
        let reason = "svclab builds routes without this setting";
        let item = OmittedItem::new(location, description, reason);
        report.omitted.push(item.with_effect(affects));
    }
}

/// Whether packets are as without the setting.
fn has_no_effect(route: &Route, dump: &NodeDump, name: &str, value: &str) -> bool {
    let Ok(value) = value.trim_start_matches("lock ").parse::<u32>() else {
        return false;
    };
    match name {
        // The MTU of the interface is the smaller one.
        "mtu" => {
            let dev = route.attributes.get("dev").unwrap_or_default();
            let link = dump.links.as_ref().and_then(|links| links.get(dev));
            link.and_then(mtu).is_some_and(|mtu| mtu <= value)
        }
        "hoplimit" => value == DEFAULT_TTL,
        _ => false,
    }
}
