//! Tests that every timeout has a single cause: with the cause undone in an otherwise equal plan,
//! the probe connects.

use libtest_mimic::{Failed, Trial};
use svclab_model::evidence::Verdict;
use svclab_model::plan::{Namespace, Plan, VirtualServer};
use svclab_ruleset::nft;
use svclab_ruleset::nft::Table;
use svclab_runner::kernel::{Agent, KernelError};
use svclab_runner::run::Prepared;
use svclab_scenario::Case;

use super::full::ordinary_or_full;
use super::guests;

/// Cause of the timeout of a probe in some cases.
struct Cause {
    lab: &'static str,
    /// Axis values of the cases with this cause.
    when: &'static [(&'static str, &'static [&'static str])],
    /// Probes that time out for this cause.
    probes: &'static [&'static str],
    /// Changes that undo the cause; several changes only work together.
    undo: &'static [Undo],
}

/// A change of a plan that undoes a cause.
#[derive(Debug, Clone, Copy)]
enum Undo {
    /// Removes a line from the rules of a namespace.
    WithoutLine {
        namespace: &'static str,
        line: &'static str,
    },
    /// Adds a line at the end of a table of a namespace.
    WithLine {
        namespace: &'static str,
        table: &'static str,
        line: &'static str,
    },
    /// Removes some words from a line.
    WithoutWords {
        namespace: &'static str,
        line: &'static str,
        words: &'static str,
    },
    /// Removes an entry from a set or map of kube-proxy's own nftables table.
    WithoutEntry {
        namespace: &'static str,
        set: &'static str,
        key: &'static str,
    },
    /// Appends a rule to a chain of kube-proxy's own nftables table.
    WithRule {
        namespace: &'static str,
        chain: &'static str,
        rule: &'static str,
    },
    /// Removes a real server from all virtual servers of the namespace.
    WithoutBackend {
        namespace: &'static str,
        to: &'static str,
    },
    /// Sets a sysctl on these nodes; a cluster sets it on all.
    WithSysctl {
        namespaces: &'static [&'static str],
        key: &'static str,
        value: &'static str,
    },
}

/// The rule of an earlier flannel, which prevents masquerading of packets to the other node's pods.
const REMOVE_SURPLUS_RULE: Undo = Undo::WithoutLine {
    namespace: "node-1",
    line: "-A POSTROUTING ! -s 192.168.64.0/20 -d 192.168.66.0/24 -j RETURN",
};

const STALE_RULE_PRESENT: (&str, &[&str]) = ("stale", &["present", "missed", "respelled"]);

/// Marks packets that do not come from pods, as a kube-proxy with the pod network does. Without the
/// pod network, kube-proxy also leaves its set of cluster IPs empty, so the rule names their
/// network.
const MARK_NON_POD_SOURCES: Undo = Undo::WithLine {
    namespace: "node-1",
    table: "nat",
    line: "-I KUBE-SERVICES ! -s 11.0.0.0/16 -d 10.20.0.0/16 -j KUBE-MARK-MASQ",
};

/// The rule by which Local exempts packets to a balancer's address from the mark, in ipvs mode.
const REMOVE_LOCAL_RETURN: Undo = Undo::WithoutLine {
    namespace: "node-1",
    line: "-A KUBE-LOAD-BALANCER -m comment --comment \"Kubernetes service load balancer ip + port \
           with externalTrafficPolicy=local\" -m set --match-set KUBE-LOAD-BALANCER-LOCAL dst,dst \
           -j RETURN",
};

/// First half of a balancer that forwards from its own address: masquerades the forwarded packets.
const MASQUERADE_ON_BALANCER: Undo = Undo::WithLine {
    namespace: "fabric",
    table: "nat",
    line: "-A POSTROUTING -p tcp -d 172.18.1.10 --dport 30443 -j MASQUERADE",
};

/// Second half: conntrack tracks the packets that IPVS forwards; otherwise the kernel does not
/// masquerade them.
const TRACK_IPVS_CONNECTIONS: Undo = Undo::WithSysctl {
    namespaces: &["fabric"],
    key: "net.ipv4.vs.conntrack",
    value: "1",
};

const CAUSES: &[Cause] = &[
    // Two halves: the surplus rule, and a strict node or underlay. Undoing one half is sufficient,
    // unless both nodes and underlay are strict.
    Cause {
        lab: "canal-stale-rule",
        when: &[STALE_RULE_PRESENT, ("rpFilter", &["1"])],
        probes: &["call"],
        undo: &[REMOVE_SURPLUS_RULE],
    },
    Cause {
        lab: "canal-stale-rule",
        when: &[
            STALE_RULE_PRESENT,
            ("rpFilter", &["0", "2"]),
            ("underlay", &["drops"]),
        ],
        probes: &["call"],
        undo: &[REMOVE_SURPLUS_RULE],
    },
    Cause {
        lab: "canal-stale-rule",
        when: &[
            STALE_RULE_PRESENT,
            ("rpFilter", &["1"]),
            ("underlay", &["passes"]),
        ],
        probes: &["call"],
        undo: &[Undo::WithSysctl {
            namespaces: &["node-1", "node-2"],
            key: "net.ipv4.conf.all.rp_filter",
            value: "0",
        }],
    },
    Cause {
        lab: "canal-stale-rule",
        when: &[
            STALE_RULE_PRESENT,
            ("rpFilter", &["0", "2"]),
            ("underlay", &["drops"]),
        ],
        probes: &["call"],
        undo: &[Undo::WithoutLine {
            namespace: "fabric",
            line: "-A SOURCE-node-2 -m comment --comment \"source check of node-2\" -j DROP",
        }],
    },
    Cause {
        lab: "local-ingress",
        when: &[
            ("policy", &["Local"]),
            ("clusterCIDR", &["none"]),
            ("version", &["v1.30"]),
            ("mode", &["iptables"]),
        ],
        probes: &["apart"],
        undo: &[Undo::WithoutLine {
            namespace: "node-1",
            line: "-A KUBE-EXTERNAL-SERVICES -m comment --comment \"ns1/nginx:http has no local \
                   endpoints\" -m tcp -p tcp -d 1.2.3.4 --dport 80 -j DROP",
        }],
    },
    Cause {
        lab: "local-ingress",
        when: &[
            ("policy", &["Local"]),
            ("clusterCIDR", &["none"]),
            ("version", &["v1.30"]),
            ("mode", &["iptables"]),
        ],
        probes: &["podToExternal"],
        undo: &[Undo::WithoutLine {
            namespace: "node-1",
            line: "-A KUBE-EXTERNAL-SERVICES -m comment --comment \"ns1/svc1:p80 has no local \
                   endpoints\" -m tcp -p tcp -d 192.168.99.11 --dport 80 -j DROP",
        }],
    },
    // In nftables mode, the drop is an entry of a map. Packets of pods match it while they are
    // forwarded, and up to v1.32 those of a node before they are sent.
    Cause {
        lab: "local-ingress",
        when: &[("policy", &["Local"]), ("mode", &["nftables"])],
        probes: &["apart", "nodeWithout"],
        undo: &[Undo::WithoutEntry {
            namespace: "node-1",
            set: "no-endpoint-services",
            key: "1.2.3.4 . tcp . 80",
        }],
    },
    Cause {
        lab: "local-ingress",
        when: &[("policy", &["Local"]), ("mode", &["nftables"])],
        probes: &["podToExternal", "nodeToExternal"],
        undo: &[Undo::WithoutEntry {
            namespace: "node-1",
            set: "no-endpoint-services",
            key: "192.168.99.11 . tcp . 80",
        }],
    },
    Cause {
        lab: "local-ingress",
        when: &[("policy", &["Local"]), ("version", &["v1.14"])],
        probes: &["nodeWithout"],
        undo: &[Undo::WithoutLine {
            namespace: "node-1",
            line: "-A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping marked \
                   packets\" -m mark --mark 0x00008000/0x00008000 -j DROP",
        }],
    },
    // kube-proxy does not forward packets from the bridge to the service on their own node. The
    // other node does, and half of the replies bypass that node.
    Cause {
        lab: "local-ingress",
        when: &[
            ("policy", &["Local"]),
            ("clusterCIDR", &["set"]),
            ("version", &["v1.20"]),
        ],
        probes: &["podToExternal"],
        undo: &[Undo::WithoutWords {
            namespace: "node-1",
            line: "-A KUBE-SERVICES -m comment --comment \"ns1/svc1:p80 external IP\" -m tcp -p tcp \
                   -d 192.168.99.11 --dport 80 -m physdev ! --physdev-is-in -m addrtype ! \
                   --src-type LOCAL -j KUBE-XLB-XPGD46QRK7WJZT7O",
            words: " -m physdev ! --physdev-is-in",
        }],
    },
    Cause {
        lab: "local-ingress",
        when: &[
            ("policy", &["Local"]),
            ("clusterCIDR", &["set"]),
            ("version", &["v1.20"]),
        ],
        probes: &["podToExternal"],
        undo: &[Undo::WithoutLine {
            namespace: "node-2",
            line: "-A KUBE-XLB-XPGD46QRK7WJZT7O -m comment --comment \"Redirect pods trying to \
                   reach external loadbalancer VIP to clusterIP\" -s 10.0.0.0/8 -j \
                   KUBE-SVC-XPGD46QRK7WJZT7O",
        }],
    },
    // In ipvs mode, Local also exempts the node's own connections from the mark.
    Cause {
        lab: "local-ingress",
        when: &[("version", &["v1.24"]), ("mode", &["ipvs"])],
        probes: &["nodeWithout"],
        undo: &[REMOVE_LOCAL_RETURN],
    },
    Cause {
        lab: "local-ingress",
        when: &[("version", &["v1.24"]), ("mode", &["ipvs"])],
        probes: &["nodeToExternal"],
        undo: &[Undo::WithLine {
            namespace: "node-1",
            table: "nat",
            line: "-I KUBE-SERVICES -m set --match-set KUBE-EXTERNAL-IP-LOCAL dst,dst -j \
                   KUBE-MARK-MASQ",
        }],
    },
    // As with Cluster, forwards to any endpoint, and masquerades so that replies pass the node.
    Cause {
        lab: "service-paths",
        when: &[("mode", &["iptables"])],
        probes: &["outsideToLocal", "podToLocal"],
        undo: &[
            Undo::WithLine {
                namespace: "node-a",
                table: "nat",
                line: "-A KUBE-EXT-CKNT3XJEPRBDUPB5 -j KUBE-MARK-MASQ",
            },
            Undo::WithLine {
                namespace: "node-a",
                table: "nat",
                line: "-A KUBE-EXT-CKNT3XJEPRBDUPB5 -j KUBE-SVC-CKNT3XJEPRBDUPB5",
            },
        ],
    },
    Cause {
        lab: "service-paths",
        when: &[("mode", &["nftables"])],
        probes: &["outsideToLocal", "podToLocal"],
        undo: &[
            Undo::WithRule {
                namespace: "node-a",
                chain: "external-DTMMQG6G-default/apart/tcp/p",
                rule: "mark set mark or 0x00004000",
            },
            Undo::WithRule {
                namespace: "node-a",
                chain: "external-DTMMQG6G-default/apart/tcp/p",
                rule: "goto service-DTMMQG6G-default/apart/tcp/p",
            },
        ],
    },
    Cause {
        lab: "service-paths",
        when: &[("mode", &["ipvs"])],
        probes: &["outsideToLocal", "nodeToLocal"],
        undo: &[Undo::WithoutLine {
            namespace: "node-a",
            line: "-A KUBE-LOAD-BALANCER -m comment --comment \"Kubernetes service load balancer \
                   ip + port with externalTrafficPolicy=local\" -m set --match-set \
                   KUBE-LOAD-BALANCER-LOCAL dst,dst -j RETURN",
        }],
    },
    // The rule that Local adds precedes the mark.
    Cause {
        lab: "clb-hairpin",
        when: &[
            ("policy", &["Local"]),
            ("ingress", &["both"]),
            ("balancer", &["internal"]),
        ],
        probes: &["call"],
        undo: &[REMOVE_LOCAL_RETURN],
    },
    // With a single backend, masquerading on the node only makes the backend unavailable to the
    // client. A balancer that forwards from its own address fixes the loop.
    Cause {
        lab: "clb-hairpin",
        when: &[
            ("policy", &["Local"]),
            ("ingress", &["clientsNode"]),
            ("balancer", &["internal"]),
        ],
        probes: &["call"],
        undo: &[MASQUERADE_ON_BALANCER, TRACK_IPVS_CONNECTIONS],
    },
    // With or without health check, a backend without an endpoint does not answer.
    Cause {
        lab: "clb-hairpin",
        when: &[("balancer", &["unchecked"])],
        probes: &["call"],
        undo: &[Undo::WithoutBackend {
            namespace: "fabric",
            to: "172.18.1.10:30443",
        }],
    },
    // The only backend is the source of the packet: a balancer that forwards from its own address
    // need not exclude it.
    Cause {
        lab: "clb-hairpin",
        when: &[("balancer", &["singleDrops"])],
        probes: &["call"],
        undo: &[
            Undo::WithoutLine {
                namespace: "fabric",
                line: "-A PREROUTING -s 172.18.1.10 -d 172.18.96.4 -p tcp --dport 443 -j MARK \
                       --set-mark 101",
            },
            MASQUERADE_ON_BALANCER,
            TRACK_IPVS_CONNECTIONS,
        ],
    },
    Cause {
        lab: "clb-hairpin",
        when: &[("balancer", &["blocked"])],
        probes: &["call"],
        undo: &[Undo::WithoutLine {
            namespace: "internet",
            line: "-A SG-clb -m comment --comment \"security group of clb\" -j DROP",
        }],
    },
    Cause {
        lab: "missing-cluster-cidr",
        when: &[
            ("clusterCIDR", &["missing", "service"]),
            ("byHand", &["nothing"]),
        ],
        probes: &["fromNode", "fromHostPod"],
        undo: &[MARK_NON_POD_SOURCES],
    },
    Cause {
        lab: "missing-cluster-cidr",
        when: &[("clusterCIDR", &["missing", "service"])],
        probes: &["other"],
        undo: &[MARK_NON_POD_SOURCES],
    },
    Cause {
        lab: "missing-cluster-cidr",
        when: &[("byHand", &["flushed"])],
        probes: &["fromNode", "fromHostPod", "other"],
        undo: REMOVE_FLUSHES,
    },
];

/// Commands that an operator typed.
const REMOVE_FLUSHES: &[Undo] = &[
    Undo::WithoutLine {
        namespace: "node-1",
        line: "-F KUBE-SERVICES",
    },
    Undo::WithoutLine {
        namespace: "node-1",
        line: "-F KUBE-POSTROUTING",
    },
];

/// An ordinary run tries one of this many causes in guests, which are slower; the full run tries
/// all.
const GUEST_TRIAL_STEP: usize = 4;

/// Returns one trial for each cause of each case, and a trial that every probe with a timeout has a
/// cause.
pub fn trials(cases: &[Prepared]) -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut probes_without_cause = Vec::new();
    let every_of_a_guest = ordinary_or_full(GUEST_TRIAL_STEP, 1);
    let mut considered = 0;
    for prepared in cases {
        for probe in timed_out_probes(prepared) {
            let known: Vec<&Cause> = CAUSES
                .iter()
                .filter(|cause| {
                    cause.probes.contains(&probe.as_str()) && cause.applies_to(&prepared.case)
                })
                .collect();
            if known.is_empty() {
                probes_without_cause.push(format!("{}: {probe}", prepared.case.id));
            }
            for cause in known {
                considered += 1;
                if guests::needs_guest(&prepared.plan) && considered % every_of_a_guest != 0 {
                    continue;
                }
                let (prepared, probe) = (prepared.clone(), probe.clone());
                let name = format!("cause/{}: {probe}: {}", prepared.case.id, cause.describe());
                trials.push(Trial::test(name, move || {
                    check_cause(&prepared, &probe, cause)
                }));
            }
        }
    }
    trials.push(Trial::test("cause/every timeout", move || {
        if probes_without_cause.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "these probes have no cause:\n{}",
                probes_without_cause.join("\n")
            )
            .into())
        }
    }));
    trials
}

/// Returns the probes for which a case expects timeouts. Excludes probes after steps: there the
/// step is the cause, and the lab states the result of the same probe before.
fn timed_out_probes(prepared: &Prepared) -> Vec<String> {
    let probes = &prepared.case.expected().expected.probes;
    probes
        .iter()
        .filter(|(name, _)| prepared.case.spec.probes.contains_key(*name))
        .filter(|(_, expected)| expected.timeout.is_some_and(|count| !count.contains(0)))
        .map(|(name, _)| name.clone())
        .collect()
}

impl Cause {
    fn describe(&self) -> String {
        let names: Vec<String> = self.undo.iter().map(|undo| undo.name()).collect();
        names.join("; ")
    }

    fn applies_to(&self, case: &Case) -> bool {
        case.lab == self.lab
            && self.when.iter().all(|(axis, values)| {
                case.values
                    .get(*axis)
                    .is_some_and(|value| values.contains(&value.as_str()))
            })
    }
}

impl Undo {
    fn name(self) -> String {
        match self {
            Self::WithoutLine {
                namespace: of,
                line,
            } => format!("{of} without `{line}`"),
            Self::WithLine {
                namespace: of,
                table,
                line,
            } => format!("{of} with `{line}` in {table}"),
            Self::WithoutEntry {
                namespace: of,
                set,
                key,
            } => format!("{of} without {key} in {set}"),
            Self::WithRule {
                namespace: of,
                chain,
                rule,
            } => format!("{of} with `{rule}` in {chain}"),
            Self::WithoutBackend { namespace: of, to } => format!("{of} without the backend {to}"),
            Self::WithoutWords {
                namespace: of,
                line,
                words,
            } => format!("{of}, `{line}` without `{words}`"),
            Self::WithSysctl {
                namespaces: of,
                key,
                value,
            } => format!("{} with {key} = {value}", of.join(", ")),
        }
    }

    /// Applies the change to a plan.
    fn apply(self, plan: &mut Plan) -> Result<(), Failed> {
        match self {
            Self::WithSysctl {
                namespaces: of,
                key,
                value,
            } => {
                for name in of {
                    let setting = find_namespace(plan, name)?
                        .sysctls
                        .iter_mut()
                        .find(|setting| setting.key == key && setting.value != value)
                        .ok_or(format!("{name} has no {key} other than {value}"))?;
                    value.clone_into(&mut setting.value);
                }
                Ok(())
            }
            Self::WithoutLine {
                namespace: of,
                line,
            } => replace_line(find_namespace(plan, of)?, line, None),
            Self::WithLine {
                namespace: of,
                table,
                line,
            } => append_line(find_namespace(plan, of)?, table, line),
            Self::WithoutEntry {
                namespace: of,
                set,
                key,
            } => change_kube_proxy_table(find_namespace(plan, of)?, |table| {
                let mut sets = table.sets.iter_mut();
                let Some(set) = sets.find(|known| known.name == set) else {
                    return false;
                };
                let before = set.elements.len();
                set.elements.retain(|element| element.key != key);
                set.elements.len() + 1 == before
            }),
            Self::WithRule {
                namespace: of,
                chain,
                rule,
            } => change_kube_proxy_table(find_namespace(plan, of)?, |table| {
                let mut chains = table.chains.iter_mut();
                let found = chains.find(|known| known.name == chain);
                found.map(|chain| chain.push_rule(rule)).is_some()
            }),
            Self::WithoutBackend { namespace: of, to } => {
                let servers = &mut find_namespace(plan, of)?.ipvs;
                let count = |servers: &[VirtualServer]| -> usize {
                    servers.iter().map(|server| server.servers.len()).sum()
                };
                let before = count(servers);
                for server in servers.iter_mut() {
                    server.servers.retain(|real| real.address.to_string() != to);
                }
                if count(servers) == before {
                    return Err(format!("{of} has no backend {to}").into());
                }
                Ok(())
            }
            Self::WithoutWords {
                namespace: of,
                line,
                words,
            } => replace_line(
                find_namespace(plan, of)?,
                line,
                Some(&line.replacen(words, "", 1)),
            ),
        }
    }
}

/// Changes kube-proxy's own IPv4 table.
fn change_kube_proxy_table(
    namespace: &mut Namespace,
    change: impl FnOnce(&mut Table) -> bool,
) -> Result<(), Failed> {
    let mut ruleset = nft::parse(&namespace.nft).map_err(|problems| format!("{problems:?}"))?;
    let table = ruleset
        .tables
        .first_mut()
        .ok_or("the namespace has no nftables table")?;
    if !change(table) {
        return Err(format!("nothing to change in\n{table}").into());
    }
    namespace.nft = ruleset.to_string();
    Ok(())
}

fn find_namespace<'a>(plan: &'a mut Plan, name: &str) -> Result<&'a mut Namespace, Failed> {
    let mut namespaces = plan.namespaces.iter_mut();
    let found = namespaces.find(|namespace| namespace.name == name);
    Ok(found.ok_or(format!("the plan has no {name}"))?)
}

/// Replaces or removes the only line that equals `line`.
fn replace_line(
    namespace: &mut Namespace,
    line: &str,
    replacement: Option<&str>,
) -> Result<(), Failed> {
    let rules = namespace.iptables.as_mut().map(|rules| &mut rules.v4);
    let rules = rules.ok_or("the namespace has no iptables rules")?;
    let (matching, rest): (Vec<&str>, Vec<&str>) = rules.lines().partition(|rule| *rule == line);
    if matching.len() != 1 || replacement == Some(line) {
        return Err(format!(
            "{} lines are `{line}`:\n{}",
            matching.len(),
            rest.join("\n")
        )
        .into());
    }
    let lines = rules
        .lines()
        .filter_map(|own| if own == line { replacement } else { Some(own) });
    *rules = lines.flat_map(|line| [line, "\n"]).collect();
    Ok(())
}

/// Appends a line to a table.
fn append_line(namespace: &mut Namespace, table: &str, line: &str) -> Result<(), Failed> {
    let rules = namespace.iptables.as_mut().map(|rules| &mut rules.v4);
    let rules = rules.ok_or("the namespace has no iptables rules")?;
    let table = format!("*{table}\n");
    let begins = rules.find(&table);
    if begins.is_none() {
        rules.push_str(&table);
        rules.push_str("COMMIT\n");
    }
    let from = begins.or_else(|| rules.find(&table)).unwrap_or_default();
    let end = rules[from..]
        .find("COMMIT\n")
        .ok_or("the table has no COMMIT")?;
    rules.insert_str(from + end, &format!("{line}\n"));
    Ok(())
}

/// Asserts that the probe times out in the original plan, and connects in the changed one.
fn check_cause(prepared: &Prepared, probe_name: &str, cause: &Cause) -> Result<(), Failed> {
    let mut plan = prepared.plan.clone();
    plan.probes.retain(|probe| probe.name == probe_name);
    let mut changed = plan.clone();
    for undo in cause.undo {
        undo.apply(&mut changed)?;
    }
    let (original, undone) = guests::with_agent_for(&prepared.plan, async |agent| {
        futures_util::future::try_join(verdicts(&agent, plan), verdicts(&agent, changed)).await
    })?;
    let expected = &prepared.case.expected().expected.probes[probe_name];
    let timeouts = original
        .iter()
        .filter(|verdict| **verdict == Verdict::Timeout)
        .count();
    let timeouts = u32::try_from(timeouts)?;
    if !expected
        .timeout
        .is_some_and(|count| count.contains(timeouts))
        || timeouts == 0
    {
        return Err(format!("unchanged case: {original:?}").into());
    }
    if undone.len() != original.len() || undone.iter().any(|v| *v != Verdict::Connected) {
        return Err(format!("with {}: {undone:?}", cause.describe()).into());
    }
    Ok(())
}

async fn verdicts(agent: &Agent, plan: Plan) -> Result<Vec<Verdict>, KernelError> {
    let evidence = agent.build(plan).await?.probe().await?;
    Ok(evidence
        .attempts
        .iter()
        .map(|attempt| attempt.verdict)
        .collect())
}
