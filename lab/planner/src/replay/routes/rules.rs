//! Replays the routing rules of a dumped node.

use ipnetwork::IpNetwork;

use super::super::report::{ReplayReport, join_words};
use super::tables::table_number;
use svclab_dump::NodeDump;
use svclab_model::plan::{RoutingAction, RoutingRule};
use svclab_ruleset::Family;
use svclab_ruleset::nft::protocol_number;
use svclab_ruleset::route::rule::PolicyRule as DumpedRule;

/// Routing rules of a dumped node, as a plan has them.
#[derive(Default)]
pub(super) struct PlannedRules {
    /// Rules other than the kernel's own.
    pub(super) added: Vec<RoutingRule>,
    /// Rules of the kernel that somebody has deleted.
    pub(super) removed: Vec<RoutingRule>,
}

/// Returns the routing rules. Output without any rule of the kernel does not tell whether these
/// were deleted: the program may have printed a part of the rules only.
pub(super) fn plan_routing_rules(
    dump: &NodeDump,
    omitted: &mut Vec<(String, &'static str)>,
    report: &mut ReplayReport,
) -> PlannedRules {
    let mut planned = PlannedRules::default();
    for (ip, dumped) in &dump.routing_rules {
        let is_of_family = |rule: &RoutingRule| rule.v6 == (*ip == Family::V6);
        let (mut kept, mut removed): (Vec<_>, Vec<_>) = (
            Vec::new(),
            RoutingRule::kernel_rules().filter(is_of_family).collect(),
        );
        for rule in dumped {
            match plan_routing_rule(*ip, rule, dump) {
                Ok(rule) if removed.contains(&rule) => {
                    removed.retain(|own| *own != rule);
                    kept.push(rule);
                }
                Ok(rule) if kept.contains(&rule) => {}
                Ok(rule) => planned.added.push(rule),
                Err(reason) => omitted.push((join_words(&rule.source_text), reason)),
            }
        }
        if !kept.is_empty() {
            planned.removed.extend(removed);
        } else if !dumped.is_empty() {
            for rule in removed {
                report.add_omitted(
                    format!("the missing {ip} routing rule `{rule}`"),
                    "the output has none of the kernel's own rules and may be incomplete",
                    "packets take another route in the lab",
                );
            }
        }
    }
    planned
}

/// Table of the rule that the kernel adds with the first VRF (iproute2 6.1, `ip/iprule.c`,
/// `print_rule`).
const VRF_TABLE: &str = "[l3mdev-table]";

/// Attributes of routing rules that svclab supports.
const SUPPORTED_ATTRIBUTES: [&str; 17] = [
    "from",
    "to",
    "fwmark",
    "iif",
    "oif",
    "ipproto",
    "sport",
    "dport",
    "lookup",
    "table",
    "suppress_prefixlength",
    "proto",
    "protocol",
    "blackhole",
    "unreachable",
    "prohibit",
    "[detached]",
];

pub(in crate::replay) fn plan_routing_rule(
    ip: Family,
    rule: &DumpedRule,
    dump: &NodeDump,
) -> Result<RoutingRule, &'static str> {
    let attributes = &rule.attributes;
    let is_unsupported = |name: &str| !SUPPORTED_ATTRIBUTES.contains(&name);
    if attributes
        .0
        .iter()
        .any(|attribute| is_unsupported(&attribute.name))
    {
        return Err(
            "svclab supports only sources, destinations, marks, interfaces, protocols and ports in \
             routing rules",
        );
    }
    let network = |name: &str| match attributes.get(name) {
        None | Some("all") => Ok(None),
        Some(text) => text
            .parse::<IpNetwork>()
            .map(Some)
            .map_err(|_| "its source or destination is not a network"),
    };
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let ip_protocol = match attributes.get("ipproto") {
        None => None,
        Some(text) => Some(protocol_number(text).ok_or("its `ipproto` is not a protocol")?),
    };
    let ports = |name: &str| match attributes.get(name) {
        None => Ok(None),
        Some(text) => {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let range = first.parse().ok().zip(last.parse().ok());
            range.map(Some).ok_or("its ports are not numbers")
        }
    };
    let mark = match attributes.get("fwmark") {
        None => None,
        Some(text) => {
            let (bits, mask_text) = text.split_once('/').unwrap_or((text, "0xffffffff"));
            let mark_and_mask = number(bits).zip(number(mask_text));
            Some(mark_and_mask.ok_or("its `fwmark` is not a mark")?)
        }
    };
    let action = if attributes.has("blackhole") {
        RoutingAction::Blackhole
    } else if attributes.has("unreachable") {
        RoutingAction::Unreachable
    } else if attributes.has("prohibit") {
        RoutingAction::Prohibit
    } else {
        let name = attributes.get("lookup").or_else(|| attributes.get("table"));
        let name = name.ok_or("it has no action")?;
        if name == VRF_TABLE {
            return Err("svclab does not build VRFs");
        }
        RoutingAction::Table(table_number(name, dump))
    };
    Ok(RoutingRule {
        inverted: rule.inverted,
        from: network("from")?,
        to: network("to")?,
        mark,
        input_interface: attributes.get("iif").map(str::to_owned),
        output_interface: attributes.get("oif").map(str::to_owned),
        ip_protocol,
        source_ports: ports("sport")?,
        destination_ports: ports("dport")?,
        suppress_prefix_length: attributes
            .get("suppress_prefixlength")
            .and_then(|text| text.parse().ok()),
        ..RoutingRule::new(ip == Family::V6, rule.priority, action)
    })
}
