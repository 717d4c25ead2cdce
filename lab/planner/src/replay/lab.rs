//! Writes a lab document for dumped nodes that come without one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde_json::Value;

use svclab_dump::NodeDump;
use svclab_model::evidence::{Attempt, Verdict};
use svclab_model::plan::Backend;
use svclab_ruleset::tool::{Backing, Ip};
use svclab_scenario::expectation::ANY;

/// Dump of one node.
#[derive(Debug, Clone, Copy)]
pub struct Dumped<'a> {
    /// Name of the node.
    pub node: &'a str,
    /// Path of the dump as the lab refers to it.
    pub path: &'a str,
    /// Parsed dump.
    pub dump: &'a NodeDump,
    /// Whether parts that cannot be built are omitted.
    pub lenient: bool,
}

/// Returns the node that belongs to a dump: the first node with an address of a dumped interface.
/// `nodes` are names with addresses.
#[must_use]
pub fn node_of<'n>(dump: &NodeDump, nodes: &'n [(String, Vec<IpAddr>)]) -> Option<&'n str> {
    let links = dump.links.as_ref()?;
    let own = |ip: &IpAddr| {
        let mut all = links.values().flat_map(|link| &link.addresses);
        all.any(|address| address.network.ip() == *ip)
    };
    let mut nodes = nodes.iter();
    let (name, _) = nodes.find(|(_, addresses)| addresses.iter().any(own))?;
    Some(name)
}

/// Returns the YAML of a lab of dumped nodes, with a `Node` object for each that is not in
/// `objects`. `probes` are pairs of source and target.
///
/// # Errors
///
/// Returns the name of a node whose address is in neither an object nor the dump.
pub fn lab(
    name: &str,
    dumps: &[Dumped<'_>],
    objects: &[(String, Vec<IpAddr>)],
    probes: &[(String, String)],
) -> Result<String, String> {
    let mut text = String::new();
    let nodes: Vec<&str> = dumps.iter().map(|dumped| dumped.node).collect();
    let _ = write!(
        text,
        "apiVersion: svclab/v1\nkind: Lab\nmetadata: {{name: {}}}\nspec:\n  about: {}\n",
        quoted(name),
        quoted(&format!("{} as dumped.", nodes.join(", ")))
    );
    if dumps
        .iter()
        .any(|dumped| backend(dumped.dump) == Backend::Legacy)
    {
        text.push_str("  iptables: legacy\n");
    }
    if dumps.iter().any(|dumped| has_link(dumped.dump, "cali")) {
        text.push_str("  calico: {version: v3.28.0}\n");
    }
    text.push_str(&kube_proxy(dumps));
    if let Some(network) = shared(dumps, objects) {
        let _ = writeln!(text, "  fabric: {{type: switched, subnet: {network}}}");
    }
    text.push_str("  nodes:\n");
    for dumped in dumps {
        let _ = write!(
            text,
            "    {}: {{dump: {}",
            quoted(dumped.node),
            quoted(dumped.path)
        );
        if dumped.lenient {
            text.push_str(", lenient: true");
        }
        let known = objects.iter().find(|(name, _)| name == dumped.node);
        let subnet = own(
            dumped.dump,
            known.map(|(_, addresses)| addresses.as_slice()),
        );
        if let Some(subnet) = subnet.filter(|_| shared(dumps, objects).is_none()) {
            let _ = write!(text, ", subnet: {}/{}", subnet.network(), subnet.prefix());
        }
        text.push_str("}\n");
    }
    if !probes.is_empty() {
        text.push_str("  probes:\n");
        for (at, (from, to)) in probes.iter().enumerate() {
            let (from, to) = (quoted(from), quoted(to));
            let _ = writeln!(text, "    probe-{}: {{from: {from}, to: {to}}}", at + 1);
        }
    }
    text.push_str("  expect:\n");
    if probes.is_empty() {
        text.push_str("  - {}\n");
    }
    for at in 0..probes.len() {
        let indent = if at == 0 { "  - " } else { "    " };
        let _ = write!(text, "{indent}{}", undecided(&format!("probe-{}", at + 1)));
    }
    for dumped in dumps {
        if objects.iter().any(|(name, _)| name == dumped.node) {
            continue;
        }
        let address = own(dumped.dump, None).ok_or_else(|| dumped.node.to_owned())?;
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {}}}\nstatus: {{addresses: [{{type: InternalIP, address: {}}}]}}\n",
            quoted(dumped.node),
            address.ip()
        );
    }
    Ok(text)
}

/// Returns the lab with the observed number of each verdict as the expectation of each probe. The
/// lab must expect nothing yet.
#[must_use]
pub fn expecting(lab: &str, seen: &[Attempt]) -> String {
    let mut counts: BTreeMap<&str, BTreeMap<Verdict, usize>> = BTreeMap::new();
    for attempt in seen {
        let own = counts.entry(&attempt.probe).or_default();
        *own.entry(attempt.verdict).or_default() += 1;
    }
    let mut lab = lab.to_owned();
    for (probe, verdicts) in counts {
        let verdicts = verdicts.iter();
        let verdicts: Vec<String> = verdicts
            .map(|(verdict, count)| format!("{verdict}: {count}"))
            .collect();
        let seen = format!("{probe}: {{{}}}\n", verdicts.join(", "));
        lab = lab.replacen(&undecided(probe), &seen, 1);
    }
    lab
}

/// Returns the expectation line of a probe without a known result.
fn undecided(probe: &str) -> String {
    format!("{probe}: {ANY}\n")
}

/// Returns the `kubeProxy` field for nodes without a dump: the flags of the dumped kube-proxies, if
/// known.
fn kube_proxy(dumps: &[Dumped<'_>]) -> String {
    let said = |flag: &str| {
        let mut all = dumps
            .iter()
            .filter_map(|dumped| dumped.dump.proxy.said(flag));
        all.next()
    };
    let modes = ["iptables", "ipvs", "nftables"];
    let mode = said("proxy-mode").filter(|mode| modes.contains(mode));
    let cidr = said("cluster-cidr").filter(|cidr| {
        let mut networks = cidr.split(',');
        networks.all(|network| network.parse::<IpNetwork>().is_ok())
    });
    let fields = [("mode", mode), ("clusterCIDR", cidr)];
    let fields = fields
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}: {}", quoted((*value)?))));
    let fields: Vec<String> = fields.collect();
    if fields.is_empty() {
        return String::new();
    }
    format!("  kubeProxy: {{version: v1.30, {}}}\n", fields.join(", "))
}

/// Quotes a string for YAML.
fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

fn has_link(dump: &NodeDump, begins: &str) -> bool {
    let links = dump.links.iter().flat_map(|links| links.keys());
    links.into_iter().any(|name| name.starts_with(begins))
}

/// Returns the iptables backend of the rules. If both have output, the backend with rules.
fn backend(dump: &NodeDump) -> Backend {
    let filled = |backing| {
        let rules = dump.rules.get(&(Ip::V4, backing));
        rules.is_some_and(|rules| !rules.tables.is_empty())
    };
    if filled(Backing::Legacy) && !filled(Backing::Default) {
        Backend::Legacy
    } else {
        Backend::Nft
    }
}

/// Returns the address of the node with its network. With an object, the object's address;
/// otherwise the first address of the interface of the default route.
fn own(dump: &NodeDump, known: Option<&[IpAddr]>) -> Option<IpNetwork> {
    let links = dump.links.as_ref()?;
    if let Some(known) = known {
        let mut all = links.values().flat_map(|link| &link.addresses);
        let found = all.find(|address| known.contains(&address.network.ip()))?;
        return Some(found.network);
    }
    let mut routes = dump.routes.values().flatten();
    let default = routes.find(|route| &*route.to == "default" && route.table() == "main")?;
    let dev = default.attributes.get("dev")?;
    let first = links.get(dev)?.addresses.first()?;
    Some(first.network)
}

/// Returns the network that the first dumped node shares with another node; the nodes are then on
/// one bridge.
fn shared(dumps: &[Dumped<'_>], objects: &[(String, Vec<IpAddr>)]) -> Option<IpNetwork> {
    let first = dumps.first()?;
    let known = objects.iter().find(|(name, _)| name == first.node);
    let own_address = own(first.dump, known.map(|(_, addresses)| addresses.as_slice()))?;
    let of_objects = objects.iter().filter(|(name, _)| name != first.node);
    let mut of_objects = of_objects.flat_map(|(_, addresses)| addresses);
    let others = dumps
        .iter()
        .skip(1)
        .filter_map(|dumped| own(dumped.dump, None));
    let mut others = others.map(|network| network.ip());
    let inside =
        of_objects.any(|ip| own_address.contains(*ip)) || others.any(|ip| own_address.contains(ip));
    let network = IpNetwork::new(own_address.network(), own_address.prefix()).ok()?;
    inside.then_some(network)
}
