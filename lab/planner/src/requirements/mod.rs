//! Lists the requirements of a plan: modules that the kernel loads to build the plan, and programs
//! that the agent starts. The kernel side (`kernel::modules`) checks whether they are available.
//!
//! A module has the name by which the kernel requests it (`request_module`). The name is often an
//! alias, such as `ipt_comment` or `ip_set_hash:ip`. `modprobe` accepts aliases, and the module
//! list of each kernel maps them to modules.

mod commands;
mod nft;
mod rules;
mod sets;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use indexmap::IndexMap;
use ipnetwork::IpNetwork;

use svclab_model::plan::{Backend, Iptables, LinkKind, Namespace, Plan, Sysctl, VirtualServer};
use svclab_model::tools::iptables_program;
use svclab_rules::kube_proxy::Mode;
use svclab_ruleset::iptables::script::IptablesScript;
use svclab_ruleset::ipvs::Timeouts;

use rules::KnownRules;

/// Maximum number of characters of a rule that a message quotes.
const MAX_QUOTED: usize = 100;

/// First requester of a module or program, for messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requester {
    /// Name of the namespace; empty for the plan as a whole.
    pub namespace: String,
    /// Requesting object, such as "the interface `cni0`".
    pub object: String,
}

impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.object)
        } else {
            write!(f, "{} in {}", self.object, self.namespace)
        }
    }
}

/// Requirements of a plan, in order of the plan, each with its first requester.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requirements {
    modules: IndexMap<String, Requester>,
    programs: IndexMap<String, Requester>,
}

/// Modules without which kube-proxy falls back from ipvs mode to iptables mode (kubernetes v1.20.2,
/// `pkg/proxy/ipvs/proxier.go`, `CanUseIPVSProxier`), and those of its addresses and sets.
const KUBE_PROXY_IPVS_MODULES: [&str; 7] = [
    "ip_vs",
    "ip_vs_rr",
    "ip_vs_wrr",
    "ip_vs_sh",
    "nf_conntrack",
    "dummy",
    "ip_set",
];

impl Requirements {
    /// Returns the requirements for building a plan and running its probes.
    #[must_use]
    pub fn from_plan(plan: &Plan) -> Self {
        let mut needs = Self::default();
        let mut known_rules = KnownRules::new();
        for namespace in &plan.namespaces {
            let name = &namespace.name;
            needs.add_links(namespace);
            needs.add_ipvs(name, namespace.ipvs_timeouts.as_ref(), &namespace.ipvs);
            needs.add_sysctls(name, &namespace.sysctls);
            sets::add_requirements(&mut needs, name, &namespace.ipset);
            needs.add_accounting(name, &namespace.accounting);
            let rules = namespace.iptables_rules();
            needs.add_rules(name, rules, &BTreeSet::new(), &mut known_rules);
            nft::add_requirements(&mut needs, name, &namespace.nft);
        }
        if let Some(namespace) = plan.evidence.packets.first() {
            needs.add_module("af_packet", namespace, || "the packet capture".to_owned());
        }
        needs.add_trace(plan);
        needs.add_real_proxies(plan);
        for typed in &plan.commands {
            if let Some(program) = typed.command.first() {
                needs.add_program(program, &typed.namespace, || format!("`{typed}`"));
            }
            commands::add_requirements(&mut needs, typed);
        }
        needs.add_steps(plan);
        needs
    }

    /// Returns the requirements of a running lab, which can also delete conntrack entries. The
    /// kernel requests the netlink interface of conntrack by number, which is an alias of this
    /// module (Linux v6.12, `net/netfilter/nfnetlink.c`, `nfnetlink_rcv_msg`).
    #[must_use]
    pub fn for_running_lab(plan: &Plan) -> Self {
        let mut needs = Self::from_plan(plan);
        needs.add_module("nf_conntrack_netlink", "", || {
            "the deletion of conntrack entries".to_owned()
        });
        needs
    }

    /// Returns the modules, by the names that the kernel requests, with their first requesters.
    pub fn modules(&self) -> impl Iterator<Item = (&str, &Requester)> {
        self.modules
            .iter()
            .map(|(name, requester)| (name.as_str(), requester))
    }

    /// Returns the programs, by file name, with their first requesters.
    pub fn programs(&self) -> impl Iterator<Item = (&str, &Requester)> {
        self.programs.iter().map(|(name, by)| (name.as_str(), by))
    }

    /// Returns the first requester of IPVS or its sysctls, which the kernel allows only for root of
    /// the initial user namespace. `None` if the plan does not use IPVS.
    #[must_use]
    pub fn ipvs_requester(&self) -> Option<&Requester> {
        self.modules.get("ip_vs")
    }

    fn add_module(&mut self, name: &str, namespace: &str, object: impl FnOnce() -> String) {
        insert_first(&mut self.modules, name, namespace, object);
    }

    fn add_program(&mut self, name: &str, namespace: &str, object: impl FnOnce() -> String) {
        insert_first(&mut self.programs, name, namespace, object);
    }

    /// Adds the modules of virtual servers. The kernel requests the family of the control interface
    /// and each scheduler by name (Linux v6.12, `net/netfilter/ipvs/`).
    fn add_ipvs(
        &mut self,
        namespace: &str,
        timeouts: Option<&Timeouts>,
        servers: &[VirtualServer],
    ) {
        if timeouts.is_some() {
            self.add_module("ip_vs", namespace, || "the IPVS timeouts".to_owned());
        }
        for server in servers {
            let object = || format!("the virtual server {}", server.key);
            self.add_module("ip_vs", namespace, object);
            self.add_module(&format!("ip_vs_{}", server.scheduler), namespace, object);
        }
    }

    fn add_links(&mut self, namespace: &Namespace) {
        for link in &namespace.links {
            let object = || format!("the interface `{}`", link.name);
            // If `rtnl_link_ops_get` finds no type, the kernel requests `rtnl-link-KIND` (Linux
            // v6.12, `net/core/rtnetlink.c`). Each of these modules has the name of its kind.
            let module = match link.kind {
                LinkKind::Veth { .. } => "veth",
                LinkKind::Bridge => "bridge",
                LinkKind::Dummy => "dummy",
                LinkKind::Vxlan { .. } => "vxlan",
            };
            self.add_module(module, &namespace.name, object);
            if let Some(address) = link.addresses.iter().find(|address| address.is_ipv6()) {
                self.add_module("ipv6", &namespace.name, || {
                    format!("the address {}", IpNetwork::ip(address))
                });
            }
        }
    }

    /// Adds the requirements of real kube-proxies at startup, by mode.
    fn add_real_proxies(&mut self, plan: &Plan) {
        for proxy in &plan.kube_proxies {
            let object = || format!("kube-proxy in {} mode", proxy.mode);
            let modules: &[&str] = match proxy.mode {
                Mode::Iptables => &[],
                Mode::Ipvs => &KUBE_PROXY_IPVS_MODULES,
                Mode::Nftables => &["nf_tables"],
            };
            for module in modules {
                self.add_module(module, &proxy.namespace, object);
            }
            let programs: &[&str] = match proxy.mode {
                Mode::Nftables => &["nft"],
                Mode::Ipvs => &["ipset"],
                Mode::Iptables => &[],
            };
            for program in programs {
                self.add_program(program, &proxy.namespace, object);
            }
            if proxy.mode != Mode::Nftables {
                let restore = iptables_program(4, proxy.backend, "restore");
                self.add_program(&restore, &proxy.namespace, object);
            }
        }
    }

    /// Adds the additional requirements of steps.
    fn add_steps(&mut self, plan: &Plan) {
        let mut chains: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for namespace in &plan.namespaces {
            let known = chains.entry(&namespace.name).or_default();
            known.extend(declared_chains(namespace.iptables_rules()));
        }
        let mut known_rules = KnownRules::new();
        for step in plan.steps() {
            for change in &step.delta.namespaces {
                let name = &change.namespace;
                let rules = change.iptables_rules();
                let rules = rules.map(|rules| &rules.batches);
                let known = chains.entry(name).or_default();
                known.extend(declared_chains(rules.clone()));
                self.add_ipvs(name, None, &change.ipvs.add);
                self.add_sysctls(name, &change.sysctls);
                if let Some(sets) = &change.sets {
                    sets::add_requirements(self, name, &sets.create);
                }
                self.add_accounting(name, &change.accounting);
                // The commands of a delta do not declare existing chains.
                self.add_rules(name, rules, known, &mut known_rules);
                if let Some(tables) = &change.nft {
                    nft::add_requirements(self, name, &tables.add);
                }
            }
            let conntrack_node = step
                .api_update
                .as_ref()
                .and_then(|update| update.calls_conntrack.as_ref());
            if let Some(namespace) = conntrack_node {
                self.add_program("conntrack", namespace, || {
                    "the deletion of conntrack entries by kube-proxy".to_owned()
                });
            }
            if let Some(namespace) = step.conntrack_deletions.keys().next().or(conntrack_node) {
                self.add_module("nf_conntrack_netlink", namespace, || {
                    "the deletion of conntrack entries".to_owned()
                });
            }
        }
    }

    /// Adds the modules that provide sysctls. Writing a sysctl loads no module; without the module,
    /// the sysctl does not exist.
    fn add_sysctls(&mut self, namespace: &str, sysctls: &[Sysctl]) {
        for setting in sysctls.iter().filter(|setting| !setting.optional) {
            let module = if setting.key.starts_with("net.bridge.") {
                "br_netfilter"
            } else if setting.key.starts_with("net.netfilter.nf_conntrack") {
                "nf_conntrack"
            } else if setting.key.starts_with("net.ipv4.vs.") {
                "ip_vs"
            } else if setting.key.starts_with("net.ipv6.") {
                "ipv6"
            } else {
                continue;
            };
            self.add_module(module, namespace, || {
                format!("the sysctl {} = {}", setting.key, setting.value)
            });
        }
    }

    /// Adds the module of accounting objects. The kernel requests each netfilter netlink subsystem
    /// by number, which is an alias of this module (Linux v6.12, `net/netfilter/nfnetlink_acct.c`).
    fn add_accounting(&mut self, namespace: &str, names: &[String]) {
        if let Some(name) = names.first() {
            self.add_module("nfnetlink_acct", namespace, || {
                format!("the nfacct object {name}")
            });
        }
    }

    /// Adds the modules of traces. The kernel requests netfilter netlink subsystems as in the case
    /// of `nfnetlink_acct`. A log to a missing subsystem loads no module, and only legacy rules
    /// log.
    fn add_trace(&mut self, plan: &Plan) {
        let object = || "the trace".to_owned();
        for name in &plan.evidence.trace {
            for module in ["nfnetlink", "nf_tables", "nf_conntrack_netlink"] {
                self.add_module(module, name, object);
            }
            let backends = plan.namespace(name).into_iter();
            if backends
                .flat_map(Namespace::iptables_rules)
                .any(|rules| rules.backend == Backend::Legacy)
            {
                self.add_module("nfnetlink_log", name, object);
            }
        }
    }

    fn add_rules<'r>(
        &mut self,
        namespace: &str,
        rules: impl Iterator<Item = &'r Iptables>,
        known_chains: &BTreeSet<&str>,
        known_rules: &mut KnownRules<'r>,
    ) {
        for Iptables { backend, v4, v6 } in rules {
            for (family, input) in [(4, v4), (6, v6)] {
                if input.is_empty() {
                    continue;
                }
                let program = iptables_program(family, *backend, "restore");
                self.add_program(&program, namespace, || format!("the IPv{family} rules"));
                if let Ok(script) = input.state() {
                    rules::add_requirements(
                        self,
                        namespace,
                        *backend,
                        family,
                        script,
                        known_chains,
                        known_rules,
                    );
                }
            }
        }
    }
}

/// Returns the chains that the scripts declare.
fn declared_chains<'r>(rules: impl Iterator<Item = &'r Iptables>) -> impl Iterator<Item = &'r str> {
    let inputs = rules.flat_map(|rules| [&rules.v4, &rules.v6]);
    let scripts = inputs.filter_map(|input| input.state().ok());
    let blocks = scripts.flat_map(IptablesScript::tables);
    blocks.flat_map(|(_, block)| block.created_chains())
}

fn insert_first(
    requirements: &mut IndexMap<String, Requester>,
    name: &str,
    namespace: &str,
    object: impl FnOnce() -> String,
) {
    if !requirements.contains_key(name) {
        let requester = Requester {
            namespace: namespace.to_owned(),
            object: object(),
        };
        requirements.insert(name.to_owned(), requester);
    }
}

/// Quotes a line for a message, truncated to the maximum length.
fn quote_line(kind: &str, line: &str) -> String {
    if line.chars().count() <= MAX_QUOTED {
        return format!("the {kind} `{line}`");
    }
    let start: String = line.chars().take(MAX_QUOTED).collect();
    format!("the {kind} `{start}…`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::plan::{EvidenceRequest, Link, Mac, PortSettings};
    use svclab_ruleset::input::Input;

    fn link(name: &str, kind: LinkKind, address: &str) -> Link {
        Link {
            name: name.to_owned(),
            kind,
            mac: Mac::from_names("a", name),
            addresses: vec![address.parse().unwrap()],
            bridge: None,
            port: PortSettings::default(),
            down: false,
            mtu: None,
        }
    }

    fn setting(key: &str, optional: bool) -> Sysctl {
        Sysctl {
            key: key.to_owned(),
            value: "1".to_owned(),
            link: None,
            optional,
        }
    }

    #[test]
    fn requirements_of_plan_name_first_requester() {
        let plan = Plan {
            namespaces: vec![Namespace {
                name: "node-1".to_owned(),
                links: vec![
                    link("cni0", LinkKind::Bridge, "10.0.0.1/24"),
                    link("cni1", LinkKind::Bridge, "fd00::1/64"),
                ],
                sysctls: vec![
                    setting("net.bridge.bridge-nf-call-arptables", true),
                    setting("net.ipv4.ip_forward", false),
                    setting("net.bridge.bridge-nf-call-iptables", false),
                ],
                ipset: Input::from_text("create s hash:ip family inet\nadd s 10.0.0.1\n"),
                iptables: Some(Iptables {
                    backend: Backend::Legacy,
                    v4: Input::from_text(
                        "*nat\n:S - [0:0]\n-A S -m set --match-set s src -j DNAT --to-destination 10.0.0.1\nCOMMIT\n",
                    ),
                    v6: Input::default(),
                }),
                ..Namespace::default()
            }],
            evidence: EvidenceRequest {
                packets: vec!["node-1".to_owned()],
                trace: vec!["node-1".to_owned()],
                ..EvidenceRequest::default()
            },
            ..Plan::default()
        };
        let needs = Requirements::from_plan(&plan);
        let lines: Vec<String> = needs
            .modules()
            .chain(needs.programs())
            .map(|(name, by)| format!("{name}: {by}"))
            .collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        bridge: the interface `cni0` in node-1
        ipv6: the address fd00::1 in node-1
        br_netfilter: the sysctl net.bridge.bridge-nf-call-iptables = 1 in node-1
        ip_set: the address sets in node-1
        ip_set_hash:ip: the set `create s hash:ip family inet` in node-1
        ip_tables: the rules of iptables-legacy in node-1
        iptable_nat: the table `*nat` in node-1
        ipt_set: the rule `-A S -m set --match-set s src -j DNAT --to-destination 10.0.0.1` in node-1
        ipt_DNAT: the rule `-A S -m set --match-set s src -j DNAT --to-destination 10.0.0.1` in node-1
        af_packet: the packet capture in node-1
        nfnetlink: the trace in node-1
        nf_tables: the trace in node-1
        nf_conntrack_netlink: the trace in node-1
        nfnetlink_log: the trace in node-1
        ipset: the address sets in node-1
        iptables-legacy-restore: the IPv4 rules in node-1
        ");
    }

    #[test]
    fn requirements_empty_plan_is_empty() {
        assert_eq!(
            Requirements::from_plan(&Plan::default()),
            Requirements::default()
        );
        let optional = Plan {
            namespaces: vec![Namespace {
                sysctls: vec![setting("net.ipv6.conf.all.disable_ipv6", true)],
                ..Namespace::default()
            }],
            ..Plan::default()
        };
        assert_eq!(Requirements::from_plan(&optional), Requirements::default());
    }
}
