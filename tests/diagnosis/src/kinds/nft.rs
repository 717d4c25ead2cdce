//! Faults in the table of nftables that kube-proxy wrote.

use super::{Kind, NFTABLES, kind};
use crate::draw::{Draw, Drawn, commands};
use crate::fault::{Culprit, Fault};
use crate::state::{NodeState, Rule};

pub(super) const AREA: &str = "nftables";
const TABLE: &str = "ip kube-proxy";

pub(super) const KINDS: [Kind; 18] = [
    kind("nft-map-element-missing", AREA, NFTABLES, missing_element),
    kind("nft-map-element-wrong", AREA, NFTABLES, wrong_element),
    kind("nft-node-port-missing", AREA, NFTABLES, missing_node_port),
    kind(
        "nft-node-address-missing",
        AREA,
        NFTABLES,
        missing_node_address,
    ),
    kind("nft-rejected-service", AREA, NFTABLES, rejected_service),
    kind("nft-rejected-node-port", AREA, NFTABLES, rejected_node_port),
    kind("nft-cluster-ip-extra", AREA, NFTABLES, extra_cluster_ip),
    kind("nft-firewall-extra", AREA, NFTABLES, extra_firewall),
    kind("nft-source-range", AREA, NFTABLES, source_range),
    kind("nft-rule-missing-hook", AREA, NFTABLES, missing_hook),
    kind("nft-rule-missing-dnat", AREA, NFTABLES, missing_dnat),
    kind("nft-rule-missing-mark", AREA, NFTABLES, missing_mark),
    kind(
        "nft-rule-missing-masquerade",
        AREA,
        NFTABLES,
        missing_masquerade,
    ),
    kind("nft-rule-inserted-drop", AREA, NFTABLES, inserted_drop),
    kind("nft-dnat-wrong-address", AREA, NFTABLES, dnat_wrong_address),
    kind("nft-dnat-wrong-port", AREA, NFTABLES, dnat_wrong_port),
    kind("nft-wrong-mark", AREA, NFTABLES, wrong_mark),
    kind("nft-vmap-wrong-endpoint", AREA, NFTABLES, wrong_endpoint),
];

fn pick_rule(
    draw: &mut Draw<'_>,
    node: &NodeState,
    prefix: &str,
    text: &str,
) -> Result<Rule, String> {
    let wanted = |rule: &Rule| rule.chain.starts_with(prefix) && rule.text.contains(text);
    let rules = node.nft_rules().into_iter().filter(wanted).collect();
    draw.pick(rules, &format!("rule in a chain {prefix}* with `{text}`"))
}

fn pick_element(draw: &mut Draw<'_>, node: &NodeState, set: &str) -> Result<String, String> {
    let elements = node
        .nft_elements()
        .into_iter()
        .filter(|(name, _)| name == set);
    let elements = elements.map(|(_, element)| element).collect();
    draw.pick(elements, &format!("element of {set}"))
}

fn key(element: &str) -> &str {
    element.split(" : ").next().unwrap_or(element)
}

/// Returns a shell command that runs `nft ACTION rule` for a rule by its handle.
fn by_handle(action: &str, rule: &Rule, new: &str) -> String {
    let Rule { chain, number, .. } = rule;
    format!(
        "sh -c 'handle=$(nft -a list chain {TABLE} {chain} | awk \"/^\\t\\t/ && /# handle/ \
         {{n++; if (n == {number}) print \\$NF}}\"); nft {action} rule {TABLE} {chain} handle \
         $handle {new}'"
    )
}

fn delete(node: &NodeState, rule: &Rule) -> Fault {
    let mut fault = commands(
        &node.name,
        &[by_handle("delete", rule, "")],
        vec![Culprit::missing_rule(
            &node.name,
            &rule.chain,
            &[&rule.text],
        )],
    );
    fault.summary = format!(
        "{}: delete rule {} of {}: {}",
        node.name, rule.number, rule.chain, rule.text
    );
    fault
}

fn replace(node: &NodeState, rule: &Rule, old: &str, new: &str) -> Drawn {
    let text = rule.text.replacen(old, new, 1);
    if text == rule.text {
        return Err(format!("the rule has no `{old}`"));
    }
    let mut fault = commands(
        &node.name,
        &[by_handle("replace", rule, &text)],
        vec![Culprit::rule(&node.name, &rule.chain, &[old, new])],
    );
    fault.summary = format!(
        "{}: replace rule {} of {} by: {text}",
        node.name, rule.number, rule.chain
    );
    Ok(fault)
}

fn delete_element(node: &NodeState, set: &str, element: &str) -> Fault {
    let command = format!("nft 'delete element {TABLE} {set} {{ {} }}'", key(element));
    commands(
        &node.name,
        &[command],
        vec![Culprit::entry(&node.name, set, key(element))],
    )
}

fn add_element(node: &NodeState, set: &str, element: &str) -> Fault {
    let command = format!("nft 'add element {TABLE} {set} {{ {element} }}'");
    commands(
        &node.name,
        &[command],
        vec![Culprit::entry(&node.name, set, key(element))],
    )
}

fn missing_element(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let element = pick_element(draw, node, "service-ips")?;
    Ok(delete_element(node, "service-ips", &element))
}

fn wrong_element(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let element = pick_element(draw, node, "service-ips")?;
    let other = pick_element(draw, node, "service-ips")?;
    let (Some((key, old)), Some((_, verdict))) =
        (element.split_once(" : "), other.split_once(" : "))
    else {
        return Err("the map has no verdicts".to_owned());
    };
    if old == verdict {
        return Err("both elements have the same verdict".to_owned());
    }
    let command = format!(
        "nft 'delete element {TABLE} service-ips {{ {key} }}; add element {TABLE} service-ips {{ \
         {key} : {verdict} }}'"
    );
    Ok(commands(
        &node.name,
        &[command],
        vec![Culprit::entry(&node.name, "service-ips", key)],
    ))
}

fn missing_node_port(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let element = pick_element(draw, node, "service-nodeports")?;
    Ok(delete_element(node, "service-nodeports", &element))
}

fn missing_node_address(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let element = pick_element(draw, node, "nodeport-ips")?;
    Ok(delete_element(node, "nodeport-ips", &element))
}

fn rejected_service(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let element = pick_element(draw, node, "service-ips")?;
    let verdict = draw.pick_text(&["drop", "goto reject-chain"]);
    Ok(add_element(
        node,
        "no-endpoint-services",
        &format!("{} : {verdict}", key(&element)),
    ))
}

fn rejected_node_port(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let element = pick_element(draw, node, "service-nodeports")?;
    let verdict = draw.pick_text(&["drop", "goto reject-chain"]);
    Ok(add_element(
        node,
        "no-endpoint-nodeports",
        &format!("{} : {verdict}", key(&element)),
    ))
}

fn extra_cluster_ip(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    // The check is after DNAT.
    let endpoint = draw.endpoint(node)?;
    Ok(add_element(node, "cluster-ips", &endpoint))
}

fn extra_firewall(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let element = pick_element(draw, node, "service-ips")?;
    Ok(add_element(
        node,
        "firewall-ips",
        &format!("{} : drop", key(&element)),
    ))
}

fn source_range(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "firewall-", "ip saddr")?;
    let old = rule
        .text
        .split_whitespace()
        .find(|word| word.contains('/'))
        .unwrap_or_default()
        .to_owned();
    let new = format!("198.18.{}.0/24", draw.random.below(250));
    replace(node, &rule, &old, &new)
}

fn missing_hook(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "nat-", "jump")?;
    Ok(delete(node, &rule))
}

fn missing_dnat(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "endpoint-", "dnat to")?;
    Ok(delete(node, &rule))
}

fn missing_mark(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "external-", "jump mark-for-masquerade")?;
    Ok(delete(node, &rule))
}

fn missing_masquerade(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "masquerading", "masquerade")?;
    Ok(delete(node, &rule))
}

fn inserted_drop(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let endpoint = draw.endpoint(node)?;
    let chain = draw.pick_text(&["filter-forward", "filter-output"]);
    let command = format!("nft insert rule {TABLE} {chain} ip daddr {endpoint} drop");
    Ok(commands(
        &node.name,
        &[command],
        vec![Culprit::rule(&node.name, chain, &[&endpoint])],
    ))
}

fn dnat_wrong_address(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "endpoint-", "dnat to")?;
    let old = rule.text.rsplit(' ').next().unwrap_or_default().to_owned();
    let port = old.rsplit(':').next().unwrap_or_default();
    let new = format!("10.244.2.{}:{port}", 100 + draw.random.below(100));
    replace(node, &rule, &old, &new)
}

fn dnat_wrong_port(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "endpoint-", "dnat to")?;
    let old = rule.text.rsplit(' ').next().unwrap_or_default().to_owned();
    let address = old.split(':').next().unwrap_or_default();
    let new = format!("{address}:{}", 9000 + draw.random.below(900));
    replace(node, &rule, &old, &new)
}

fn wrong_mark(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "mark-for-masquerade", "meta mark set")?;
    replace(node, &rule, "0x00004000", "0x00008000")
}

fn wrong_endpoint(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "service-", "numgen")?;
    let other = pick_rule(draw, node, "service-", "numgen")?;
    let target = |rule: &Rule| {
        let words = rule.text.split_whitespace();
        let endpoint = words
            .map(|word| word.trim_end_matches(','))
            .find(|word| word.starts_with("endpoint-"));
        endpoint.map(str::to_owned)
    };
    match (target(&rule), target(&other)) {
        (Some(old), Some(new)) if old != new => replace(node, &rule, &old, &new),
        _ => Err("both rules have the same endpoint".to_owned()),
    }
}
