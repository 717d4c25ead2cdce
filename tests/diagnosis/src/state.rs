//! State of the healthy lab from which faults are drawn: its objects, and the outputs that
//! `scripts/collect-node` collected on its nodes.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use serde_json::Value;

use crate::mode::Mode;

/// Healthy lab in one mode of kube-proxy.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) mode: Mode,
    /// Kubernetes objects of the lab.
    pub(crate) objects: Vec<Value>,
    pub(crate) nodes: Vec<NodeState>,
}

/// Outputs of programs on a node, by file name.
#[derive(Debug, Default)]
pub(crate) struct NodeState {
    pub(crate) name: String,
    files: BTreeMap<String, String>,
}

/// Rule of iptables or nftables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) table: String,
    pub(crate) chain: String,
    /// Position in the chain, from 1.
    pub(crate) number: usize,
    /// Text without `-A CHAIN`.
    pub(crate) text: String,
}

/// Route of the main table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) destination: String,
    /// Text after the destination.
    pub(crate) rest: String,
}

impl State {
    /// Returns the objects of a kind.
    pub(crate) fn objects<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects
            .iter()
            .filter(move |object| object["kind"] == kind)
    }

    /// Returns the name of the node that is not `name`.
    pub(crate) fn other_node(&self, name: &str) -> Option<&NodeState> {
        self.nodes.iter().find(|node| node.name != name)
    }
}

/// Reads the fields `NAME VALUE` of an output line of `ip`.
pub(crate) fn word_after<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == name)?;
    words.next()
}

impl NodeState {
    /// Reads the files of a dump.
    pub(crate) fn read(name: &str, directory: &Path) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if let Ok(text) = fs::read_to_string(entry.path()) {
                files.insert(entry.file_name().to_string_lossy().into_owned(), text);
            }
        }
        Ok(Self {
            name: name.to_owned(),
            files,
        })
    }

    #[cfg(test)]
    pub(crate) fn from_files(name: &str, files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Self {
            name: name.to_owned(),
            files: files.collect(),
        }
    }

    fn lines<'a>(&'a self, file: &str) -> impl Iterator<Item = &'a str> {
        self.files.get(file).map_or("", String::as_str).lines()
    }

    /// Returns the rules of iptables-nft.
    pub(crate) fn rules(&self) -> Vec<Rule> {
        let mut numbers: BTreeMap<(String, String), usize> = BTreeMap::new();
        let mut rules = Vec::new();
        let mut table = String::new();
        for line in self.lines("iptables-nft-save") {
            if let Some(name) = line.strip_prefix('*') {
                name.clone_into(&mut table);
            } else if let Some((chain, text)) = line
                .strip_prefix("-A ")
                .and_then(|rest| rest.split_once(' '))
            {
                let number = numbers
                    .entry((table.clone(), chain.to_owned()))
                    .or_default();
                *number += 1;
                rules.push(Rule {
                    table: table.clone(),
                    chain: chain.to_owned(),
                    number: *number,
                    text: text.to_owned(),
                });
            }
        }
        rules
    }

    /// Returns the lines of the table `ip kube-proxy` of nftables with their block: `chain NAME`.
    fn nft_blocks(&self) -> Vec<(String, Vec<&str>)> {
        let mut blocks: Vec<(String, Vec<&str>)> = Vec::new();
        let lines = self
            .lines("nft")
            .skip_while(|line| !line.starts_with("table ip kube-proxy {"));
        for line in lines.skip(1).take_while(|line| !line.starts_with('}')) {
            if let Some(header) = line
                .trim()
                .strip_suffix(" {")
                .filter(|_| !line.starts_with("\t\t"))
            {
                blocks.push((header.to_owned(), Vec::new()));
            } else if line.starts_with("\t\t")
                && let Some((_, content)) = blocks.last_mut()
            {
                content.push(line.trim());
            }
        }
        blocks
    }

    /// Returns the rules of kube-proxy's table of nftables.
    pub(crate) fn nft_rules(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        for (header, content) in self.nft_blocks() {
            let Some(chain) = header.strip_prefix("chain ") else {
                continue;
            };
            let texts = content
                .into_iter()
                .filter(|line| !line.starts_with("type ") && !line.starts_with("comment "));
            rules.extend(texts.enumerate().map(|(index, text)| Rule {
                table: "ip kube-proxy".to_owned(),
                chain: chain.to_owned(),
                number: index + 1,
                text: text.to_owned(),
            }));
        }
        rules
    }

    /// Returns the elements of kube-proxy's sets and maps of nftables: the name of the set, and the
    /// element.
    pub(crate) fn nft_elements(&self) -> Vec<(String, String)> {
        let mut elements = Vec::new();
        for (header, content) in self.nft_blocks() {
            let Some((kind, name)) = header.split_once(' ') else {
                continue;
            };
            let text = content.join(" ");
            let Some((_, text)) = text.split_once("elements = {").filter(|_| kind != "chain")
            else {
                continue;
            };
            let text = text.trim_end_matches('}');
            elements.extend(
                text.split(',')
                    .map(|element| (name.to_owned(), element.trim().to_owned())),
            );
        }
        elements
    }

    /// Returns the entries of ipsets: the name of the set, and the entry.
    pub(crate) fn set_entries(&self) -> Vec<(String, String)> {
        let lines = self
            .lines("ipset-save")
            .filter_map(|line| line.strip_prefix("add "));
        let parts = lines.filter_map(|line| line.split_once(' '));
        parts
            .map(|(set, entry)| (set.to_owned(), entry.trim().to_owned()))
            .collect()
    }

    /// Returns the real servers of IPVS: `-t VIRTUAL`, and the address of the real server.
    pub(crate) fn real_servers(&self) -> Vec<(String, String)> {
        let lines = self
            .lines("ipvsadm-Sn")
            .filter_map(|line| line.strip_prefix("-a "));
        let parts = lines.filter_map(|line| line.split_once(" -r "));
        parts
            .filter_map(|(server, rest)| {
                let real = rest.split_whitespace().next()?;
                Some((server.trim().to_owned(), real.to_owned()))
            })
            .collect()
    }

    /// Returns the routes of the main table.
    pub(crate) fn routes(&self) -> Vec<Route> {
        self.lines("ip-route")
            .filter(|line| !line.contains(" table "))
            .filter_map(|line| line.split_once(' '))
            .map(|(destination, rest)| Route {
                destination: destination.to_owned(),
                rest: rest.trim().to_owned(),
            })
            .collect()
    }

    /// Returns the neighbours: address, interface and hardware address.
    pub(crate) fn neighbours(&self) -> Vec<(String, String, String)> {
        self.lines("ip-neigh")
            .filter_map(|line| {
                let address = line.split_whitespace().next()?;
                let device = word_after(line, "dev")?;
                let hardware = word_after(line, "lladdr")?;
                Some((address.to_owned(), device.to_owned(), hardware.to_owned()))
            })
            .collect()
    }

    /// Returns the entries of the tunnel's forwarding database: hardware address and remote.
    pub(crate) fn tunnel_entries(&self, device: &str) -> Vec<(String, String)> {
        self.lines("bridge-fdb")
            .filter(|line| word_after(line, "dev") == Some(device))
            .filter_map(|line| {
                let hardware = line.split_whitespace().next()?;
                Some((hardware.to_owned(), word_after(line, "dst")?.to_owned()))
            })
            .collect()
    }

    /// Returns the names of the ports of the pods' bridge.
    pub(crate) fn bridge_ports(&self) -> Vec<String> {
        self.lines("bridge-link")
            .filter(|line| line.contains(" master "))
            .filter_map(|line| line.split_whitespace().nth(1))
            .map(|name| {
                name.trim_end_matches(':')
                    .split('@')
                    .next()
                    .unwrap_or(name)
                    .to_owned()
            })
            .collect()
    }

    /// Returns the names of all interfaces except the loopback interface.
    pub(crate) fn links(&self) -> Vec<String> {
        self.lines("ip-addr")
            .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()))
            .filter_map(|line| line.split_whitespace().nth(1))
            .map(|name| {
                name.trim_end_matches(':')
                    .split('@')
                    .next()
                    .unwrap_or(name)
                    .to_owned()
            })
            .filter(|name| name != "lo")
            .collect()
    }

    /// Returns the IPv4 addresses with their prefix length and interface, except those of `lo`.
    pub(crate) fn addresses(&self) -> Vec<(String, String)> {
        self.lines("ip-addr")
            .filter(|line| line.trim_start().starts_with("inet "))
            .filter_map(|line| {
                let address = word_after(line, "inet")?;
                Some((
                    address.to_owned(),
                    line.split_whitespace().last()?.to_owned(),
                ))
            })
            .filter(|(_, device)| device != "lo")
            .collect()
    }

    /// Returns the addresses with port of all endpoints of services.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        let iptables = self
            .rules()
            .into_iter()
            .filter_map(|rule| word_after(&rule.text, "--to-destination").map(str::to_owned));
        let nft = self.nft_rules().into_iter().filter_map(|rule| {
            let (_, target) = rule.text.split_once("dnat to ")?;
            Some(target.to_owned())
        });
        let ipvs = self.real_servers().into_iter().map(|(_, real)| real);
        let mut all: Vec<String> = iptables.chain(nft).chain(ipvs).collect();
        all.sort();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_numbered_within_their_chain() {
        let text =
            "*nat\n:A - [0:0]\n-A A -j RETURN\n-A B -d 10.0.0.1/32 -j A\n-A A -j ACCEPT\nCOMMIT\n";
        let node = NodeState::from_files("node-1", &[("iptables-nft-save", text)]);
        let rules: Vec<_> = node
            .rules()
            .into_iter()
            .map(|rule| {
                format!(
                    "{} {} {} {}",
                    rule.table, rule.chain, rule.number, rule.text
                )
            })
            .collect();
        assert_eq!(
            rules,
            [
                "nat A 1 -j RETURN",
                "nat B 1 -d 10.0.0.1/32 -j A",
                "nat A 2 -j ACCEPT"
            ]
        );
    }

    #[test]
    fn nft_only_the_table_of_kube_proxy_is_read() {
        let text = "table inet other {\n\tchain x {\n\t\tdrop\n\t}\n}\n\
                    table ip kube-proxy {\n\tmap m {\n\t\ttype ipv4_addr : verdict\n\
                    \t\telements = { 10.0.0.1 : goto a,\n\t\t\t     10.0.0.2 : goto b }\n\t}\n\
                    \tchain c {\n\t\ttype nat hook output priority 0; policy accept;\n\
                    \t\tjump a\n\t\treturn\n\t}\n}\n";
        let node = NodeState::from_files("node-1", &[("nft", text)]);
        let elements = node.nft_elements();
        assert_eq!(elements.len(), 2);
        assert_eq!(
            elements[1],
            ("m".to_owned(), "10.0.0.2 : goto b".to_owned())
        );
        let rules = node.nft_rules();
        assert_eq!(rules.len(), 2);
        assert_eq!((rules[1].number, rules[1].text.as_str()), (2, "return"));
    }

    #[test]
    fn links_ports_and_routes_are_read() {
        let node = NodeState::from_files(
            "node-1",
            &[
                (
                    "bridge-link",
                    "102: veth1@eth0: <UP> mtu 1500 master cni0 state forwarding\n    hairpin on\n",
                ),
                (
                    "ip-route",
                    "default via 192.168.1.1 dev eth0\nlocal 10.0.0.1 dev lo table local\n",
                ),
                (
                    "ip-neigh",
                    "10.244.2.0 dev flannel.1 lladdr 0a:58:ae:81:20:15 PERMANENT\n",
                ),
                (
                    "bridge-fdb",
                    "0a:58:ae:81:20:15 dev flannel.1 dst 192.168.2.12 self permanent\n",
                ),
                (
                    "ip-addr",
                    "1: lo: <UP>\n    inet 127.0.0.1/8 scope host lo\n2: eth0@if3: <UP>\n    inet 192.168.1.11/24 scope global eth0\n",
                ),
            ],
        );
        assert_eq!(node.bridge_ports(), ["veth1"]);
        assert_eq!(node.routes().len(), 1);
        assert_eq!(node.links(), ["eth0"]);
        assert_eq!(
            node.addresses(),
            [("192.168.1.11/24".to_owned(), "eth0".to_owned())]
        );
        assert_eq!(node.neighbours()[0].1, "flannel.1");
        assert_eq!(node.tunnel_entries("flannel.1")[0].1, "192.168.2.12");
    }
}
