//! Rules of other programs that interfere: inserted rules, policies, and tables of nftables.

use super::{IPTABLES_OR_IPVS, Kind, kind};
use crate::draw::{Draw, Drawn, commands};
use crate::fault::{Culprit, Fault};
use crate::mode::Mode;

const AREA: &str = "foreign rules";

pub(super) const KINDS: [Kind; 26] = [
    kind("drop-forward", AREA, Mode::ALL, drop_forward),
    kind("drop-raw", AREA, Mode::ALL, drop_raw),
    kind("drop-source", AREA, Mode::ALL, drop_source),
    kind("drop-tunnel-input", AREA, Mode::ALL, drop_tunnel),
    kind("drop-replies", AREA, Mode::ALL, drop_replies),
    kind("drop-at-random", AREA, Mode::ALL, drop_at_random),
    kind("drop-long-packets", AREA, Mode::ALL, drop_long),
    kind("drop-legacy-table", AREA, Mode::ALL, drop_legacy),
    kind("drop-blocklist-set", AREA, Mode::ALL, drop_blocklist),
    kind("reject-forward", AREA, Mode::ALL, reject_forward),
    kind("reject-with-reset", AREA, Mode::ALL, reject_reset),
    kind("queue-without-program", AREA, Mode::ALL, queue),
    kind("nat-return-early", AREA, IPTABLES_OR_IPVS, return_early),
    kind("nat-accept-early", AREA, Mode::ALL, accept_early),
    kind(
        "nat-masquerade-prevented",
        AREA,
        Mode::ALL,
        masquerade_prevented,
    ),
    kind("nat-foreign-source", AREA, Mode::ALL, foreign_source),
    kind(
        "nat-foreign-destination",
        AREA,
        Mode::ALL,
        foreign_destination,
    ),
    kind("mark-cleared", AREA, IPTABLES_OR_IPVS, mark_cleared),
    kind("policy-drop", AREA, Mode::ALL, policy_drop),
    kind("notrack", AREA, Mode::ALL, notrack),
    kind("conntrack-zone", AREA, Mode::ALL, zone),
    kind("ttl", AREA, Mode::ALL, ttl),
    kind("tcpmss", AREA, Mode::ALL, tcpmss),
    kind("drop-owner", AREA, Mode::ALL, drop_owner),
    kind("nft-foreign-table", AREA, Mode::ALL, foreign_table),
    kind("nft-foreign-device-hook", AREA, Mode::ALL, device_hook),
];

/// Inserts a rule on a node in front of a chain. `text` identifies the rule.
fn insert(node: &str, table: &str, chain: &str, rule: &str, text: &str) -> Fault {
    let command = format!("iptables -t {table} -I {chain} 1 {rule}");
    commands(
        node,
        &[command],
        vec![Culprit::rule(node, chain, &[text, rule])],
    )
}

/// Inserts a rule for packets to an endpoint into FORWARD of the callers' node.
fn to_endpoint(draw: &mut Draw<'_>, table: &str, chain: &str, action: &str) -> Drawn {
    let node = draw.client_node()?;
    let endpoint = draw.endpoint(node)?;
    let rule = format!("-d {endpoint}/32 {action}");
    Ok(insert(&node.name, table, chain, &rule, &rule))
}

fn drop_forward(draw: &mut Draw<'_>) -> Drawn {
    to_endpoint(draw, "filter", "FORWARD", "-j DROP")
}

fn drop_raw(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let device = draw.pick(node.links(), "interface")?;
    Ok(insert(
        &node.name,
        "raw",
        "PREROUTING",
        &format!("-i {device} -p tcp -j DROP"),
        &device,
    ))
}

fn drop_source(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let pods = node
        .neighbours()
        .into_iter()
        .filter(|(_, device, _)| device.starts_with("cni"));
    let pod = draw.pick(pods.collect(), "pod")?.0;
    Ok(insert(
        &node.name,
        "mangle",
        "PREROUTING",
        &format!("-s {pod}/32 -j DROP"),
        &pod,
    ))
}

fn drop_tunnel(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    Ok(insert(
        &node.name,
        "filter",
        "INPUT",
        "-p udp -m udp --dport 8472 -j DROP",
        "--dport 8472",
    ))
}

fn drop_replies(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let endpoint = draw.endpoint(node)?;
    let rule = format!("-s {endpoint}/32 -m conntrack --ctstate ESTABLISHED -j DROP");
    Ok(insert(&node.name, "filter", "FORWARD", &rule, &endpoint))
}

fn drop_at_random(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let matched = format!("-d {}/32 -m statistic", draw.endpoint(node)?);
    let rule = format!("{matched} --mode random --probability 0.90000000000 -j DROP");
    Ok(insert(&node.name, "filter", "FORWARD", &rule, &matched))
}

fn drop_long(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = "-p tcp -m length --length 61:65535 -j DROP";
    Ok(insert(
        &node.name,
        "mangle",
        "FORWARD",
        rule,
        "--length 61:65535",
    ))
}

fn drop_legacy(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let endpoint = draw.endpoint(node)?;
    let command = format!("iptables-legacy -I FORWARD -d {endpoint}/32 -j DROP");
    let culprit = Culprit::rule(&node.name, "FORWARD", &[&endpoint]);
    Ok(commands(&node.name, &[command], vec![culprit]))
}

fn drop_blocklist(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let endpoint = draw.endpoint(node)?;
    let all = [
        "ipset create blocked hash:ip".to_owned(),
        format!("ipset add blocked {endpoint}"),
        "iptables -I FORWARD -m set --match-set blocked dst -j DROP".to_owned(),
    ];
    let culprits = vec![
        Culprit::entry(&node.name, "blocked", &endpoint),
        Culprit::rule(&node.name, "FORWARD", &["--match-set blocked"]),
    ];
    Ok(commands(&node.name, &all, culprits))
}

fn reject_forward(draw: &mut Draw<'_>) -> Drawn {
    to_endpoint(
        draw,
        "filter",
        "FORWARD",
        "-j REJECT --reject-with icmp-port-unreachable",
    )
}

fn reject_reset(draw: &mut Draw<'_>) -> Drawn {
    to_endpoint(
        draw,
        "filter",
        "FORWARD",
        "-p tcp -j REJECT --reject-with tcp-reset",
    )
}

fn queue(draw: &mut Draw<'_>) -> Drawn {
    to_endpoint(draw, "mangle", "FORWARD", "-j NFQUEUE --queue-num 9")
}

fn return_early(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let (chain, rule) = match draw.random.below(2) {
        0 => ("KUBE-SERVICES", "-p tcp -j RETURN"),
        _ => ("KUBE-POSTROUTING", "-j RETURN"),
    };
    Ok(insert(&node.name, "nat", chain, rule, rule))
}

fn accept_early(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    if draw.state.mode == Mode::Nftables {
        // In this mode another base chain cannot prevent the rules of kube-proxy.
        return Err("an ACCEPT in one base chain does not end other base chains".to_owned());
    }
    let chain = draw.pick_text(&["PREROUTING", "OUTPUT"]);
    Ok(insert(
        &node.name,
        "nat",
        chain,
        "-p tcp -j ACCEPT",
        "-p tcp -j ACCEPT",
    ))
}

fn masquerade_prevented(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    Ok(insert(
        &node.name,
        "nat",
        "POSTROUTING",
        "-o eth0 -j RETURN",
        "-o eth0 -j RETURN",
    ))
}

fn foreign_source(draw: &mut Draw<'_>) -> Drawn {
    let source = format!("203.0.113.{}", 200 + draw.random.below(50));
    to_endpoint(
        draw,
        "nat",
        "POSTROUTING",
        &format!("-j SNAT --to-source {source}"),
    )
}

fn foreign_destination(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let chain = draw.pick_text(&["PREROUTING", "OUTPUT"]);
    let target = format!("10.244.2.{}", 200 + draw.random.below(50));
    let rule = format!("-p tcp -m tcp --dport 80 -j DNAT --to-destination {target}:80");
    Ok(insert(&node.name, "nat", chain, &rule, &target))
}

fn mark_cleared(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = "-j MARK --set-xmark 0x0/0x4000";
    Ok(insert(
        &node.name,
        "mangle",
        "POSTROUTING",
        rule,
        "--set-xmark 0x0/0x4000",
    ))
}

fn policy_drop(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    let chain = draw.pick_text(&["INPUT", "OUTPUT"]);
    let command = format!("iptables -P {chain} DROP");
    Ok(commands(
        &node.name,
        &[command],
        vec![Culprit::policy(&node.name, chain)],
    ))
}

fn notrack(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let device = draw.pick_text(&["cni0", "eth0", "flannel.1"]);
    let rule = format!("-i {device} -j CT --notrack");
    Ok(insert(&node.name, "raw", "PREROUTING", &rule, "--notrack"))
}

fn zone(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let device = draw.pick_text(&["cni0", "eth0", "flannel.1"]);
    let zone = format!("--zone {}", 2 + draw.random.below(90));
    Ok(insert(
        &node.name,
        "raw",
        "PREROUTING",
        &format!("-i {device} -j CT {zone}"),
        &zone,
    ))
}

fn ttl(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let device = draw.pick_text(&["cni0", "eth0", "flannel.1"]);
    Ok(insert(
        &node.name,
        "mangle",
        "PREROUTING",
        &format!("-i {device} -j TTL --ttl-set 1"),
        "--ttl-set 1",
    ))
}

fn tcpmss(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = "-p tcp --syn -j TCPMSS --set-mss 9000";
    Ok(insert(
        &node.name,
        "mangle",
        "FORWARD",
        rule,
        "--set-mss 9000",
    ))
}

fn drop_owner(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let rule = "-p tcp -m owner --uid-owner 0 -j DROP";
    Ok(insert(&node.name, "filter", "OUTPUT", rule, "--uid-owner"))
}

fn foreign_table(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let endpoint = draw.endpoint(node)?;
    let all = [
        "nft add table inet hardening".to_owned(),
        "nft 'add chain inet hardening transit { type filter hook forward priority 10; policy \
         accept; }'"
            .to_owned(),
        format!("nft add rule inet hardening transit ip daddr {endpoint} drop"),
    ];
    let culprit = Culprit::rule(&node.name, "transit", &[&endpoint]).or_near(["inet hardening"]);
    Ok(commands(&node.name, &all, vec![culprit]))
}

fn device_hook(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    let device = draw.pick_text(&["cni0", "eth0", "flannel.1"]);
    let all = [
        "nft add table netdev hardening".to_owned(),
        format!(
            "nft 'add chain netdev hardening arrivals {{ type filter hook ingress device {device} \
             priority 0; policy accept; }}'"
        ),
        "nft add rule netdev hardening arrivals ip protocol { tcp, udp } drop".to_owned(),
    ];
    let culprit = Culprit::rule(&node.name, "arrivals", &["drop"]).or_near(["netdev hardening"]);
    Ok(commands(&node.name, &all, vec![culprit]))
}
