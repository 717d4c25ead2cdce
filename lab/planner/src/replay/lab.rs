//! Writes a lab document for dumped nodes that come without one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde_json::Value;

use svclab_dump::NodeDump;
use svclab_model::evidence::{Attempt, Verdict};
use svclab_model::plan::Backend;
use svclab_ruleset::Family;
use svclab_ruleset::tool::DumpedBackend;
use svclab_scenario::expectation::ANY;

/// Dump of one node.
#[derive(Debug, Clone, Copy)]
pub struct DumpedNode<'a> {
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
pub fn find_node_of_dump<'n>(
    dump: &NodeDump,
    nodes: &'n [(String, Vec<IpAddr>)],
) -> Option<&'n str> {
    let links = dump.links.as_ref()?;
    let is_own_address = |ip: &IpAddr| {
        let mut all = links.values().flat_map(|link| &link.addresses);
        all.any(|address| address.network.ip() == *ip)
    };
    let mut nodes = nodes.iter();
    let (name, _) = nodes.find(|(_, addresses)| addresses.iter().any(is_own_address))?;
    Some(name)
}

/// Returns the YAML of a lab of dumped nodes, with a `Node` object for each that is not in
/// `objects`. `probes` are pairs of source and target.
///
/// # Errors
///
/// Returns the name of a node whose address is in neither an object nor the dump.
pub fn write_lab(
    name: &str,
    dumps: &[DumpedNode<'_>],
    objects: &[(String, Vec<IpAddr>)],
    probes: &[(String, String)],
) -> Result<String, String> {
    let mut text = String::new();
    let nodes: Vec<&str> = dumps.iter().map(|dumped| dumped.node).collect();
    let _ = write!(
        text,
        "apiVersion: svclab/v1\nkind: Lab\nmetadata: {{name: {}}}\nspec:\n  about: {}\n",
        yaml_string(name),
        yaml_string(&format!("{} as dumped.", nodes.join(", ")))
    );
    if dumps
        .iter()
        .any(|dumped| rules_backend(dumped.dump) == Backend::Legacy)
    {
        text.push_str("  iptables: legacy\n");
    }
    if dumps
        .iter()
        .any(|dumped| has_link_with_prefix(dumped.dump, "cali"))
    {
        text.push_str("  calico: {version: v3.28.0}\n");
    }
    text.push_str(&render_kube_proxy(dumps));
    if let Some(network) = shared_network(dumps, objects) {
        let _ = writeln!(text, "  fabric: {{type: switched, subnet: {network}}}");
    }
    text.push_str("  nodes:\n");
    for dumped in dumps {
        let _ = write!(
            text,
            "    {}: {{dump: {}",
            yaml_string(dumped.node),
            yaml_string(dumped.path)
        );
        if dumped.lenient {
            text.push_str(", lenient: true");
        }
        let object = objects.iter().find(|(name, _)| name == dumped.node);
        let subnet = own_address(
            dumped.dump,
            object.map(|(_, addresses)| addresses.as_slice()),
        );
        if let Some(subnet) = subnet.filter(|_| shared_network(dumps, objects).is_none()) {
            let _ = write!(text, ", subnet: {}/{}", subnet.network(), subnet.prefix());
        }
        text.push_str("}\n");
    }
    if !probes.is_empty() {
        text.push_str("  probes:\n");
        for (index, (from, to)) in probes.iter().enumerate() {
            let (from, to) = (yaml_string(from), yaml_string(to));
            let _ = writeln!(text, "    probe-{}: {{from: {from}, to: {to}}}", index + 1);
        }
    }
    text.push_str("  expect:\n");
    if probes.is_empty() {
        text.push_str("  - {}\n");
    }
    for index in 0..probes.len() {
        let indent = if index == 0 { "  - " } else { "    " };
        let _ = write!(
            text,
            "{indent}{}",
            pending_expectation(&format!("probe-{}", index + 1))
        );
    }
    for dumped in dumps {
        if objects.iter().any(|(name, _)| name == dumped.node) {
            continue;
        }
        let address = own_address(dumped.dump, None).ok_or_else(|| dumped.node.to_owned())?;
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {}}}\nstatus: {{addresses: [{{type: InternalIP, address: {}}}]}}\n",
            yaml_string(dumped.node),
            address.ip()
        );
    }
    Ok(text)
}

/// Returns the lab with the observed number of each verdict as the expectation of each probe. The
/// lab must expect nothing yet.
#[must_use]
pub fn expect_observed<'a>(lab: &str, attempts: impl IntoIterator<Item = &'a Attempt>) -> String {
    let mut counts: BTreeMap<&str, BTreeMap<Verdict, usize>> = BTreeMap::new();
    for attempt in attempts {
        let verdict_counts = counts.entry(&attempt.probe).or_default();
        *verdict_counts.entry(attempt.verdict).or_default() += 1;
    }
    let mut lab = lab.to_owned();
    for (probe, verdicts) in counts {
        let verdicts = verdicts.iter();
        let verdicts: Vec<String> = verdicts
            .map(|(verdict, count)| format!("{verdict}: {count}"))
            .collect();
        let expectation = format!("{probe}: {{{}}}\n", verdicts.join(", "));
        lab = lab.replacen(&pending_expectation(probe), &expectation, 1);
    }
    lab
}

/// Returns the expectation line of a probe without a known result.
fn pending_expectation(probe: &str) -> String {
    format!("{probe}: {ANY}\n")
}

/// Returns the `kubeProxy` field for nodes without a dump: the flags of the dumped kube-proxies, if
/// known.
fn render_kube_proxy(dumps: &[DumpedNode<'_>]) -> String {
    let known_flag = |flag: &str| {
        let mut values = dumps
            .iter()
            .filter_map(|dumped| dumped.dump.proxy.value(flag));
        values.next()
    };
    let modes = ["iptables", "ipvs", "nftables"];
    let mode = known_flag("proxy-mode").filter(|mode| modes.contains(mode));
    let cidr = known_flag("cluster-cidr").filter(|cidr| {
        let mut networks = cidr.split(',');
        networks.all(|network| network.parse::<IpNetwork>().is_ok())
    });
    let fields = [("mode", mode), ("clusterCIDR", cidr)];
    let fields = fields
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}: {}", yaml_string((*value)?))));
    let fields: Vec<String> = fields.collect();
    if fields.is_empty() {
        return String::new();
    }
    format!("  kubeProxy: {{version: v1.30, {}}}\n", fields.join(", "))
}

/// Quotes a string for YAML.
fn yaml_string(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

fn has_link_with_prefix(dump: &NodeDump, prefix: &str) -> bool {
    let links = dump.links.iter().flat_map(|links| links.keys());
    links.into_iter().any(|name| name.starts_with(prefix))
}

/// Returns the iptables backend of the rules. If both have output, the backend with rules.
fn rules_backend(dump: &NodeDump) -> Backend {
    let has_rules = |backing| {
        let rules = dump.rules.get(&(Family::V4, backing));
        rules.is_some_and(|rules| !rules.tables.is_empty())
    };
    if has_rules(DumpedBackend::Legacy) && !has_rules(DumpedBackend::Default) {
        Backend::Legacy
    } else {
        Backend::Nft
    }
}

/// Returns the address of the node with its network. With an object, the object's address;
/// otherwise the first address of the interface of the default route.
fn own_address(dump: &NodeDump, object_addresses: Option<&[IpAddr]>) -> Option<IpNetwork> {
    let links = dump.links.as_ref()?;
    if let Some(known) = object_addresses {
        let mut addresses = links.values().flat_map(|link| &link.addresses);
        let found = addresses.find(|address| known.contains(&address.network.ip()))?;
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
fn shared_network(
    dumps: &[DumpedNode<'_>],
    objects: &[(String, Vec<IpAddr>)],
) -> Option<IpNetwork> {
    let first = dumps.first()?;
    let object = objects.iter().find(|(name, _)| name == first.node);
    let first_address = own_address(
        first.dump,
        object.map(|(_, addresses)| addresses.as_slice()),
    )?;
    let object_addresses = objects.iter().filter(|(name, _)| name != first.node);
    let mut of_objects = object_addresses.flat_map(|(_, addresses)| addresses);
    let dumped_addresses = dumps
        .iter()
        .skip(1)
        .filter_map(|dumped| own_address(dumped.dump, None));
    let mut dumped_ips = dumped_addresses.map(|network| network.ip());
    let is_shared = of_objects.any(|ip| first_address.contains(*ip))
        || dumped_ips.any(|ip| first_address.contains(ip));
    let network = IpNetwork::new(first_address.network(), first_address.prefix()).ok()?;
    is_shared.then_some(network)
}
