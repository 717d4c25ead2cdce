//! Replays the routing rules of a dumped node.

use ipnetwork::IpNetwork;

use super::super::report::{ReplayReport, join_words};
use super::tables::table_number;
use svclab_dump::NodeDump;
use svclab_model::plan::{RoutingAction, RoutingRule};
use svclab_ruleset::Family;
use svclab_ruleset::route::rule::PolicyRule as DumpedRule;

/// Priorities and tables of the kernel's own routing rules. IPv6 has no table `default`.
const KERNEL_RULES: [(u32, &str); 3] = [(0, "local"), (32766, "main"), (32767, "default")];

/// Attributes of the kernel's own routing rules.
const KERNEL_RULE_ATTRIBUTES: [&str; 4] = ["from", "lookup", "proto", "protocol"];

/// Whether a rule is one of the kernel's: a rule with a condition is not.
fn is_rule(rule: &DumpedRule, (priority, table): (u32, &str)) -> bool {
    let attributes = &rule.attributes;
    let mut names = attributes.0.iter().map(|attribute| &*attribute.name);
    rule.priority == priority
        && !rule.inverted
        && attributes.get("lookup") == Some(table)
        && matches!(attributes.get("from"), None | Some("all"))
        && names.all(|name| KERNEL_RULE_ATTRIBUTES.contains(&name))
}

/// Lists the kernel's own routing rules that somebody has removed.
pub(super) fn list_missing_rules(dump: &NodeDump, report: &mut ReplayReport) {
    for (ip, dumped) in &dump.routing_rules {
        let own = match ip {
            Family::V4 => &KERNEL_RULES[..],
            Family::V6 => &KERNEL_RULES[..2],
        };
        let missing = own
            .iter()
            .filter(|own| !dumped.is_empty() && !dumped.iter().any(|rule| is_rule(rule, **own)));
        for (priority, table) in missing {
            report.add_omitted(
                format!("the missing {ip} routing rule `{priority}: from all lookup {table}`"),
                "svclab does not remove the kernel's own routing rules",
                "packets take another route in the lab",
            );
        }
    }
}

/// Returns the routing rules, except the kernel's own three.
pub(super) fn plan_routing_rules(
    dump: &NodeDump,
    omitted: &mut Vec<(String, &'static str)>,
) -> Vec<RoutingRule> {
    let mut rules = Vec::new();
    for (ip, dumped) in &dump.routing_rules {
        for rule in dumped {
            if KERNEL_RULES.iter().any(|own| is_rule(rule, *own)) {
                continue;
            }
            match plan_routing_rule(*ip, rule, dump) {
                Ok(rule) => rules.push(rule),
                Err(reason) => omitted.push((join_words(&rule.source_text), reason)),
            }
        }
    }
    rules
}

/// Table of the rule that the kernel adds with the first VRF (iproute2 6.1, `ip/iprule.c`,
/// `print_rule`).
const VRF_TABLE: &str = "[l3mdev-table]";

/// Attributes of routing rules that svclab supports.
const SUPPORTED_ATTRIBUTES: [&str; 14] = [
    "from",
    "to",
    "fwmark",
    "iif",
    "oif",
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
            "svclab supports only sources, destinations, marks and interfaces in routing rules",
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
        priority: rule.priority,
        v6: ip == Family::V6,
        inverted: rule.inverted,
        from: network("from")?,
        to: network("to")?,
        mark,
        input_interface: attributes.get("iif").map(str::to_owned),
        output_interface: attributes.get("oif").map(str::to_owned),
        suppress_prefix_length: attributes
            .get("suppress_prefixlength")
            .and_then(|text| text.parse().ok()),
        action,
    })
}
