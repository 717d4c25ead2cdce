//! Faults in virtual servers of IPVS and in the ipsets of ipvs mode.

use super::{IPVS, Kind, kind};
use crate::draw::{Draw, Drawn, commands};
use crate::fault::Culprit;
use crate::state::NodeState;

pub(super) const AREA: &str = "ipvs and ipsets";

pub(super) const KINDS: [Kind; 14] = [
    kind("ipvs-real-server-missing", AREA, IPVS, missing_real),
    kind("ipvs-real-server-wrong", AREA, IPVS, wrong_real),
    kind("ipvs-real-server-weight", AREA, IPVS, weight),
    kind("ipvs-real-server-tunnel", AREA, IPVS, forwarding),
    kind("ipvs-virtual-server-missing", AREA, IPVS, missing_virtual),
    kind("ipvs-scheduler", AREA, IPVS, scheduler),
    kind("ipvs-timeout", AREA, IPVS, timeout),
    kind("ipvs-address-missing", AREA, IPVS, missing_address),
    kind("ipvs-device-missing", AREA, IPVS, missing_device),
    kind("ipvs-conntrack-off", AREA, IPVS, conntrack_off),
    kind("set-entry-missing", AREA, IPVS, missing_entry),
    kind("set-entry-extra", AREA, IPVS, extra_entry),
    kind("set-source-range-missing", AREA, IPVS, missing_range),
    kind("set-flushed", AREA, IPVS, flushed),
];

fn pick_real(draw: &mut Draw<'_>, node: &NodeState) -> Result<(String, String), String> {
    draw.pick(node.real_servers(), "real server of IPVS")
}

/// Returns the address of `-t ADDRESS`.
fn address(server: &str) -> &str {
    server.rsplit(' ').next().unwrap_or(server)
}

fn missing_real(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let (server, real) = pick_real(draw, node)?;
    let culprit = Culprit::virtual_server(&node.name, address(&server), &real);
    Ok(commands(
        &node.name,
        &[format!("ipvsadm -d {server} -r {real}")],
        vec![culprit],
    ))
}

fn wrong_real(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let (server, real) = pick_real(draw, node)?;
    let port = real.rsplit(':').next().unwrap_or_default();
    let new = format!("10.244.2.{}:{port}", 100 + draw.random.below(100));
    let all = [
        format!("ipvsadm -d {server} -r {real}"),
        format!("ipvsadm -a {server} -r {new} -m -w 1"),
    ];
    let culprit = Culprit::virtual_server(&node.name, address(&server), &new)
        .or_exact([address(&server), &real]);
    Ok(commands(&node.name, &all, vec![culprit]))
}

fn weight(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let (server, real) = pick_real(draw, node)?;
    let culprit = Culprit::virtual_server(&node.name, address(&server), &real)
        .or_exact([address(&server), "weight"]);
    Ok(commands(
        &node.name,
        &[format!("ipvsadm -e {server} -r {real} -m -w 0")],
        vec![culprit],
    ))
}

fn forwarding(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let (server, real) = pick_real(draw, node)?;
    let culprit = Culprit::virtual_server(&node.name, address(&server), &real);
    Ok(commands(
        &node.name,
        &[format!("ipvsadm -e {server} -r {real} -g -w 1")],
        vec![culprit],
    ))
}

fn missing_virtual(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let (server, real) = pick_real(draw, node)?;
    let culprit = Culprit::virtual_server(&node.name, address(&server), &real)
        .or_exact([address(&server), "virtual server"])
        .or_exact([address(&server), "ipvs"])
        .or_exact([address(&server), "server"]);
    Ok(commands(
        &node.name,
        &[format!("ipvsadm -D {server}")],
        vec![culprit],
    ))
}

fn scheduler(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let (server, _) = pick_real(draw, node)?;
    let scheduler = draw.pick_text(&["sh", "sed", "nq"]);
    let culprit = Culprit::virtual_server(&node.name, address(&server), scheduler)
        .or_exact([address(&server), "scheduler"]);
    Ok(commands(
        &node.name,
        &[format!("ipvsadm -E {server} -s {scheduler}")],
        vec![culprit],
    ))
}

fn timeout(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let culprit =
        Culprit::virtual_server(&node.name, "ipvs", "timeout*").or_exact(["ipvsadm", "--set"]);
    Ok(commands(
        &node.name,
        &["ipvsadm --set 1 1 1".to_owned()],
        vec![culprit],
    ))
}

fn missing_address(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let held = node
        .addresses()
        .into_iter()
        .filter(|(_, device)| device == "kube-ipvs0");
    let (address, device) = draw.pick(held.collect(), "address of kube-ipvs0")?;
    let bare = address.split('/').next().unwrap_or(&address);
    let culprit = Culprit::address(&node.name, bare, &device);
    Ok(commands(
        &node.name,
        &[format!("ip addr del {address} dev {device}")],
        vec![culprit],
    ))
}

fn missing_device(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let culprit = Culprit::link(&node.name, "kube-ipvs0", &["missing", "link", "interface"]);
    Ok(commands(
        &node.name,
        &["ip link del kube-ipvs0".to_owned()],
        vec![culprit],
    ))
}

fn conntrack_off(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let name = "net.ipv4.vs.conntrack";
    Ok(commands(
        &node.name,
        &[format!("sysctl -w {name}=0")],
        vec![Culprit::sysctl(&node.name, name)],
    ))
}

fn pick_entry(
    draw: &mut Draw<'_>,
    node: &NodeState,
    sets: &[&str],
) -> Result<(String, String), String> {
    let entries = node
        .set_entries()
        .into_iter()
        .filter(|(set, _)| sets.is_empty() || sets.contains(&set.as_str()));
    draw.pick(entries.collect(), "entry of an ipset")
}

fn missing_entry(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let (set, entry) = pick_entry(draw, node, &[])?;
    let culprit = Culprit::entry(&node.name, &set, &entry);
    Ok(commands(
        &node.name,
        &[format!("ipset del {set} {entry}")],
        vec![culprit],
    ))
}

fn extra_entry(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let (_, entry) = pick_entry(draw, node, &["KUBE-NODE-PORT-TCP"])?;
    let set = "KUBE-NODE-PORT-LOCAL-TCP";
    let culprit = Culprit::entry(&node.name, set, &entry);
    Ok(commands(
        &node.name,
        &[format!("ipset add {set} {entry}")],
        vec![culprit],
    ))
}

fn missing_range(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let (set, entry) = pick_entry(draw, node, &["KUBE-LOAD-BALANCER-SOURCE-CIDR"])?;
    let culprit = Culprit::entry(&node.name, &set, &entry);
    Ok(commands(
        &node.name,
        &[format!("ipset del {set} {entry}")],
        vec![culprit],
    ))
}

fn flushed(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let (set, entry) = pick_entry(draw, node, &[])?;
    let culprit = Culprit::entry(&node.name, &set, &entry).or_exact([&set, "empty"]);
    // The entry that a packet needs may be another one.
    let lost = node
        .set_entries()
        .into_iter()
        .filter(|(own, _)| *own == set);
    let culprit = lost.fold(culprit, |culprit, (set, entry)| {
        culprit.or_exact([&set, &entry])
    });
    Ok(commands(
        &node.name,
        &[format!("ipset flush {set}")],
        vec![culprit],
    ))
}
