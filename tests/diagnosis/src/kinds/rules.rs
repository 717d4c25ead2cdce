//! Faults in the rules of iptables that kube-proxy and flannel wrote.

use super::{IPTABLES, IPTABLES_OR_IPVS, Kind, kind};
use crate::draw::{Draw, Drawn, commands};
use crate::fault::{Culprit, Fault};
use crate::mode::Mode;
use crate::state::{NodeState, Rule, word_after};

pub(super) const AREA: &str = "iptables rules";

pub(super) const KINDS: [Kind; 17] = [
    kind("rule-missing-service", AREA, IPTABLES, missing_service),
    kind("rule-missing-endpoint", AREA, IPTABLES, missing_endpoint),
    kind("rule-missing-dnat", AREA, IPTABLES, missing_dnat),
    kind("rule-missing-mark", AREA, IPTABLES, missing_mark),
    kind(
        "rule-missing-hairpin-mark",
        AREA,
        IPTABLES,
        missing_hairpin_mark,
    ),
    kind(
        "rule-missing-masquerade",
        AREA,
        IPTABLES_OR_IPVS,
        missing_masquerade,
    ),
    kind("rule-missing-hook", AREA, IPTABLES_OR_IPVS, missing_hook),
    kind(
        "rule-missing-flannel-masquerade",
        "flannel rules",
        Mode::ALL,
        missing_flannel,
    ),
    kind("rule-chain-flushed", AREA, IPTABLES, flushed_chain),
    kind("rule-altered-address", AREA, IPTABLES, altered_address),
    kind("rule-altered-port", AREA, IPTABLES, altered_port),
    kind(
        "rule-altered-source-range",
        AREA,
        IPTABLES,
        altered_source_range,
    ),
    kind(
        "rule-dnat-wrong-address",
        AREA,
        IPTABLES,
        dnat_wrong_address,
    ),
    kind("rule-dnat-wrong-port", AREA, IPTABLES, dnat_wrong_port),
    kind("rule-wrong-mark", AREA, IPTABLES_OR_IPVS, wrong_mark),
    kind("rule-wrong-mask", AREA, IPTABLES_OR_IPVS, wrong_mask),
    kind("rule-probability", AREA, IPTABLES, probability),
];

/// Chooses a rule of a chain with this prefix whose text contains all of these texts.
fn pick_rule(
    draw: &mut Draw<'_>,
    node: &NodeState,
    prefix: &str,
    texts: &[&str],
) -> Result<Rule, String> {
    let wanted = |rule: &Rule| {
        rule.chain.starts_with(prefix) && texts.iter().all(|text| rule.text.contains(text))
    };
    let rules = node.rules().into_iter().filter(wanted).collect();
    draw.pick(
        rules,
        &format!("rule in a chain {prefix}* with `{}`", texts.join("` and `")),
    )
}

/// Returns the part of a rule that identifies it within its chain.
fn identity(rule: &Rule) -> &str {
    ["--to-destination", "-d", "-s", "-j"]
        .iter()
        .find_map(|option| word_after(&rule.text, option))
        .unwrap_or(&rule.text)
}

fn delete(node: &NodeState, rule: &Rule) -> Fault {
    let Rule {
        table,
        chain,
        number,
        text,
    } = rule;
    let target = word_after(text, "-j").unwrap_or_default();
    let culprit = Culprit::missing_rule(&node.name, chain, &[identity(rule), target, text]);
    let mut fault = commands(
        &node.name,
        &[format!("iptables -t {table} -D {chain} {number}")],
        vec![culprit],
    );
    fault.summary = format!("{}: iptables -t {table} -D {chain} {text}", node.name);
    fault
}

/// Replaces a part of a rule.
fn replace(node: &NodeState, rule: &Rule, old: &str, new: &str) -> Drawn {
    let text = rule.text.replacen(old, new, 1);
    if text == rule.text {
        return Err(format!("the rule has no `{old}`"));
    }
    let command = format!(
        "iptables -t {} -R {} {} {text}",
        rule.table, rule.chain, rule.number
    );
    Ok(commands(
        &node.name,
        &[command],
        vec![Culprit::rule(&node.name, &rule.chain, &[old, new])],
    ))
}

fn missing_service(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "KUBE-SERVICES", &["-d ", "-j KUBE-"])?;
    Ok(delete(node, &rule))
}

fn missing_endpoint(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "KUBE-SV", &["-j KUBE-SEP-"])?;
    Ok(delete(node, &rule))
}

fn missing_dnat(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "KUBE-SEP-", &["-j DNAT"])?;
    Ok(delete(node, &rule))
}

fn missing_mark(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "KUBE-EXT-", &["-j KUBE-MARK-MASQ"])?;
    Ok(delete(node, &rule))
}

fn missing_hairpin_mark(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(
        draw,
        node,
        "KUBE-SEP-",
        &["-j KUBE-MARK-MASQ", "default/echo"],
    )?;
    Ok(delete(node, &rule))
}

fn missing_masquerade(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "KUBE-POSTROUTING", &["-j MASQUERADE"])?;
    Ok(delete(node, &rule))
}

fn missing_hook(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let hooks = node.rules().into_iter().filter(|rule| {
        rule.table == "nat" && !rule.chain.starts_with("KUBE-") && rule.text.contains("-j KUBE-")
    });
    let rule = draw.pick(hooks.collect(), "jump to a chain of kube-proxy")?;
    Ok(delete(node, &rule))
}

fn missing_flannel(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    let rule = pick_rule(draw, node, "FLANNEL-POSTRTG", &["-j MASQUERADE"])?;
    Ok(delete(node, &rule))
}

fn flushed_chain(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "KUBE-S", &["-j "])?;
    let command = format!("iptables -t {} -F {}", rule.table, rule.chain);
    let culprit = Culprit::missing_rule(&node.name, &rule.chain, &["-j", "empty"]);
    Ok(commands(&node.name, &[command], vec![culprit]))
}

fn altered_address(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "KUBE-SERVICES", &["-d ", "-j KUBE-"])?;
    let old = word_after(&rule.text, "-d").unwrap_or_default().to_owned();
    let new = format!("10.96.77.{}/32", 1 + draw.random.below(250));
    replace(node, &rule, &old, &new)
}

fn altered_port(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "KUBE-", &["--dport ", "-j KUBE-"])?;
    let port = word_after(&rule.text, "--dport")
        .unwrap_or_default()
        .to_owned();
    let new = format!("--dport {}", 10_000 + draw.random.below(1000));
    replace(node, &rule, &format!("--dport {port}"), &new)
}

fn altered_source_range(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "KUBE-FW-", &["-s ", "-j KUBE-EXT-"])?;
    let old = word_after(&rule.text, "-s").unwrap_or_default().to_owned();
    let new = format!("198.18.{}.0/24", draw.random.below(250));
    replace(node, &rule, &old, &new)
}

fn dnat_wrong_address(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "KUBE-SEP-", &["--to-destination "])?;
    let old = word_after(&rule.text, "--to-destination")
        .unwrap_or_default()
        .to_owned();
    let port = old.rsplit(':').next().unwrap_or_default();
    let new = format!("10.244.2.{}:{port}", 100 + draw.random.below(100));
    replace(node, &rule, &old, &new)
}

fn dnat_wrong_port(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "KUBE-SEP-", &["--to-destination "])?;
    let old = word_after(&rule.text, "--to-destination")
        .unwrap_or_default()
        .to_owned();
    let address = old.split(':').next().unwrap_or_default();
    let new = format!("{address}:{}", 9000 + draw.random.below(900));
    replace(node, &rule, &old, &new)
}

fn wrong_mark(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "KUBE-MARK-MASQ", &["--set-xmark"])?;
    let old = word_after(&rule.text, "--set-xmark")
        .unwrap_or_default()
        .to_owned();
    let mut fault = replace(node, &rule, &old, "0x8000/0x8000")?;
    // `why` prints the rule in the format of `iptables-restore`. The chain has one rule.
    fault.culprits = fault
        .culprits
        .into_iter()
        .map(|culprit| culprit.or_exact(["KUBE-MARK-MASQ", "--or-mark"]))
        .collect();
    Ok(fault)
}

fn wrong_mask(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "KUBE-POSTROUTING", &["--mark", "-j RETURN"])?;
    let old = word_after(&rule.text, "--mark")
        .unwrap_or_default()
        .to_owned();
    replace(node, &rule, &old, "0x4000/0x8000")
}

fn probability(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = pick_rule(draw, node, "KUBE-SVC-", &["--probability"])?;
    let old = word_after(&rule.text, "--probability")
        .unwrap_or_default()
        .to_owned();
    replace(
        node,
        &rule,
        &old,
        draw.pick_text(&["1.00000000000", "0.00000000000"]),
    )
}
