//! Feature checks: the smallest plans that show whether a kernel has a feature, with the results
//! that they must have.

mod building_blocks;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use building_blocks::{
    add_neighbours, connect, default_route, host, link, sysctl, veth_end, with_probe,
};

use svclab_model::evidence::{DropEvidence, StageEvidence, Verdict};
use svclab_model::plan::{
    Backend, Forwarding, ForwardingTarget, Iptables, Link, LinkKind, Mac, Namespace, Neighbour,
    Plan,
};
use svclab_ruleset::Protocol;
use svclab_ruleset::input::Input;
use svclab_ruleset::ipvs::{
    Forwarding as ByIpvs, RealServer, SchedulerFlags, VirtualServer, VirtualServerKey,
};

/// Maximum wait for a connection that must succeed, on a busy machine.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Wait for a connection that must not succeed.
const SILENCE: Duration = Duration::from_millis(200);

/// Port of the server in every check.
const PORT: u16 = 8080;

/// Addresses of the two hosts, of the ends of their tunnel, and of their service. All networks are
/// /24 and /64.
const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const TWO: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const INNER_ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1));
const INNER_TWO: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 2));
const SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1));
const ONE6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
const TWO6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
const SERVICE6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 1));

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FeatureCheck {
    /// Name of the feature, as text that follows "this machine has".
    pub name: &'static str,
    /// Plan that uses the feature.
    pub plan: Plan,
    /// Verdict that every probe of the plan must have.
    pub verdict: Verdict,
    /// Reason that the kernel must report for a dropped packet on the second host. `None` if drops
    /// are not traced. Labs do not need the trace: counters explain their drops without it.
    pub drop_reason: Option<&'static str>,
}

impl FeatureCheck {
    /// Checks whether the evidence has the required results.
    pub(super) fn judge(&self, evidence: &StageEvidence) -> Result<(), String> {
        let (ran, planned) = (evidence.attempts.len(), self.plan.probes().count());
        if ran != planned {
            return Err(format!("{ran} of {planned} probes ran"));
        }
        for attempt in &evidence.attempts {
            if attempt.verdict != self.verdict {
                let error = attempt.error.as_ref();
                return Err(format!(
                    "a connection has the verdict {} instead of {}{}",
                    attempt.verdict,
                    self.verdict,
                    error.map_or_else(String::new, |error| format!(" ({error})"))
                ));
            }
        }
        let has_packets =
            |name: &String| evidence.packets.iter().any(|seen| seen.namespace == *name);
        if let Some(name) = self
            .plan
            .evidence
            .packets
            .iter()
            .find(|name| !has_packets(name))
        {
            return Err(format!("no packet of {name} was captured"));
        }
        match (self.drop_reason, &evidence.drops) {
            (None, _) => Ok(()),
            (Some(_), DropEvidence::Uncertain(reason)) => Err(reason.clone()),
            (Some(reason), DropEvidence::Watched { dropped, .. })
                if dropped.iter().any(|each| each.reason == reason) =>
            {
                Ok(())
            }
            (Some(reason), _) => Err(format!(
                "the kernel reported no drop with the reason {reason}"
            )),
        }
    }
}

/// Returns all checks, the simplest first.
pub(super) fn all_checks() -> Vec<FeatureCheck> {
    let connects = |name, plan| FeatureCheck {
        name,
        plan,
        verdict: Verdict::Connected,
        drop_reason: None,
    };
    vec![
        connects(
            "network namespaces",
            Plan {
                case: "namespace".to_owned(),
                namespaces: vec![Namespace {
                    name: "alone".to_owned(),
                    ..Namespace::default()
                }],
                ..Plan::default()
            },
        ),
        connects("veth pairs and captures", with_capture(veth_pair("veth"))),
        connects("bridges", bridge("bridge")),
        connects("vxlan tunnels", tunnel()),
        connects("iptables-nft", iptables_service(Backend::Nft)),
        connects("iptables-legacy", iptables_service(Backend::Legacy)),
        connects("nftables", nftables_service()),
        connects("address sets", ipset_service()),
        FeatureCheck {
            name: "bridged packets in iptables",
            plan: bridged_drop(),
            verdict: Verdict::Timeout,
            drop_reason: None,
        },
        connects("IPv6", ipv6_service()),
        connects("dummy interfaces", dummy()),
        connects("IPVS", ipvs_service()),
        FeatureCheck {
            name: "drops and their reasons",
            plan: refused_connection(),
            verdict: Verdict::Refused,
            drop_reason: Some("NO_SOCKET"),
        },
    ]
}

/// Returns two hosts on one veth pair, with a server on the second and a connection to it.
fn veth_pair(case: &str) -> Plan {
    let mut plan = Plan {
        case: case.to_owned(),
        namespaces: vec![host("one", ONE), host("two", TWO)],
        ..Plan::default()
    };
    connect(&mut plan, ("one", "eth0"), ("two", "eth0"));
    add_neighbours(&mut plan);
    with_probe(plan, TWO, PORT, MAX_WAIT)
}

fn with_capture(mut plan: Plan) -> Plan {
    plan.evidence.packets = vec!["two".to_owned()];
    plan
}

/// Returns a connection to a port of the second host without a server.
fn refused_connection() -> Plan {
    let mut plan = veth_pair("drops");
    plan.evidence.trace = vec!["two".to_owned()];
    plan.stages[0].probes.clear();
    with_probe(plan, TWO, PORT + 1, MAX_WAIT)
}

/// Returns two hosts on one bridge.
fn bridge(case: &str) -> Plan {
    let mut plan = veth_pair(case);
    let mut switch = Namespace {
        name: "switch".to_owned(),
        links: vec![link("switch", "br0", LinkKind::Bridge, None)],
        ..Namespace::default()
    };
    for host_name in ["one", "two"] {
        let kind = veth_end(host_name, "eth0");
        switch.links.push(Link {
            bridge: Some("br0".to_owned()),
            ..link("switch", host_name, kind, None)
        });
    }
    for namespace in &mut plan.namespaces {
        let port = namespace.name.clone();
        for link in &mut namespace.links {
            link.kind = veth_end("switch", &port);
        }
    }
    plan.namespaces.push(switch);
    plan
}

/// Returns two hosts on one veth pair, with a VXLAN tunnel between them.
fn tunnel() -> Plan {
    let mut plan = veth_pair("tunnel");
    let ends = [("one", ONE, INNER_ONE), ("two", TWO, INNER_TWO)];
    for (index, (name, local, inner)) in ends.into_iter().enumerate() {
        let (far, underlay, address) = ends[1 - index];
        let kind = LinkKind::Vxlan {
            vni: 1,
            port: 8472,
            dev: "eth0".to_owned(),
            local,
        };
        let namespace = &mut plan.namespaces[index];
        namespace.links.push(link(name, "vx0", kind, Some(inner)));
        let mac = Mac::from_names(far, "vx0");
        namespace.neighbours.push(Neighbour {
            address,
            mac,
            dev: "vx0".to_owned(),
        });
        namespace.forwarding.push(Forwarding {
            dev: "vx0".to_owned(),
            mac,
            to: ForwardingTarget::Remote(underlay),
        });
    }
    plan.stages[0].probes.clear();
    with_probe(plan, INNER_TWO, PORT, MAX_WAIT)
}

/// Returns a service that iptables rules of the client translate to the server.
fn iptables_service(backend: Backend) -> Plan {
    let rules = format!(
        "*nat\n-A OUTPUT -d {SERVICE}/32 -p tcp -m comment --comment \"a service\" -m tcp --dport 80 -j DNAT --to-destination {TWO}:{PORT}\n-A POSTROUTING -m conntrack --ctstate DNAT -j MASQUERADE\nCOMMIT\n"
    );
    service_plan(&rules, backend, backend.name())
}

/// Returns a service that a map of nftables translates to the server, in the syntax of kube-proxy's
/// nftables mode.
fn nftables_service() -> Plan {
    let mut plan = service_plan("", Backend::Nft, "nftables");
    let client = &mut plan.namespaces[0];
    client.iptables = None;
    client.nft = Input::from_text(format!(
        "table ip services {{
\tmap services {{
\t\ttype ipv4_addr . inet_proto . inet_service : verdict
\t\telements = {{ {SERVICE} . tcp . 80 : goto service }}
\t}}

\tchain nat-output {{
\t\ttype nat hook output priority -100; policy accept;
\t\tct state new fib saddr type local ip daddr . meta l4proto . th dport vmap @services
\t}}

\tchain filter-output {{
\t\ttype filter hook output priority 0; policy accept;
\t\tip daddr {SERVICE} reject
\t}}

\tchain service {{
\t\tnumgen random mod 1 vmap {{ 0 : goto endpoint }}
\t}}

\tchain endpoint {{
\t\tmeta l4proto tcp dnat to {TWO}:{PORT}
\t}}

\tchain nat-postrouting {{
\t\ttype nat hook postrouting priority 100; policy accept;
\t\tct status dnat masquerade fully-random
\t}}
}}
"
    ));
    plan
}

/// Returns a service whose addresses are in a set.
fn ipset_service() -> Plan {
    let rules = format!(
        "*nat\n-A OUTPUT -p tcp -m set --match-set SERVICES dst,dst -j DNAT --to-destination {TWO}:{PORT}\nCOMMIT\n"
    );
    let mut plan = service_plan(&rules, Backend::Nft, "sets");
    plan.namespaces[0].ipset = Input::from_text(format!(
        "create SERVICES hash:ip,port\nadd SERVICES {SERVICE},tcp:80\ncreate NETWORKS hash:net\nadd NETWORKS 10.0.0.0/24\n"
    ));
    plan
}

fn service_plan(rules: &str, backend: Backend, case: &str) -> Plan {
    let mut plan = veth_pair(case);
    let client = &mut plan.namespaces[0];
    client.routes.push(default_route(TWO));
    client.iptables = Some(Iptables {
        backend,
        v4: Input::from_text(rules),
        v6: Input::default(),
    });
    plan.stages[0].probes.clear();
    with_probe(plan, SERVICE, 80, MAX_WAIT)
}

/// Returns a bridge whose rules drop the packets that it forwards.
fn bridged_drop() -> Plan {
    let mut plan = bridge("bridged");
    if let Some(switch) = plan.namespaces.last_mut() {
        switch
            .sysctls
            .push(sysctl("net.bridge.bridge-nf-call-iptables", "1"));
        switch.iptables = Some(Iptables {
            backend: Backend::Nft,
            v4: Input::from_text("*filter\n-A FORWARD -p tcp -j DROP\nCOMMIT\n"),
            v6: Input::default(),
        });
    }
    plan.stages[0].probes.clear();
    with_probe(plan, TWO, PORT, SILENCE)
}

/// Returns a namespace with a dummy interface.
fn dummy() -> Plan {
    let interface = link("alone", "dummy0", LinkKind::Dummy, Some(ONE));
    Plan {
        case: "dummy".to_owned(),
        namespaces: vec![Namespace {
            name: "alone".to_owned(),
            links: vec![interface],
            ..Namespace::default()
        }],
        ..Plan::default()
    }
}

/// Returns a service that IPVS forwards to the server, with each of the schedulers that labs use.
fn ipvs_service() -> Plan {
    let mut plan = veth_pair("IPVS");
    let client = &mut plan.namespaces[0];
    client.routes.push(default_route(TWO));
    for (port, scheduler) in [(80, "rr"), (81, "wrr"), (82, "sh")] {
        client.ipvs.push(VirtualServer {
            key: VirtualServerKey::Address {
                protocol: Protocol::Tcp,
                address: SERVICE,
                port,
            },
            scheduler: scheduler.to_owned(),
            persistence: None,
            flags: SchedulerFlags::default(),
            servers: vec![RealServer {
                address: (TWO, PORT).into(),
                weight: 1,
                method: ByIpvs::Masquerade,
            }],
        });
    }
    plan.stages[0].probes.clear();
    with_probe(plan, SERVICE, 80, MAX_WAIT)
}

/// Returns IPv6 on a veth pair, with rules.
fn ipv6_service() -> Plan {
    let mut plan = Plan {
        case: "IPv6".to_owned(),
        namespaces: vec![host("one", ONE6), host("two", TWO6)],
        ..Plan::default()
    };
    for namespace in &mut plan.namespaces {
        for key in [
            "all.disable_ipv6",
            "default.disable_ipv6",
            "default.accept_dad",
        ] {
            let key = format!("net.ipv6.conf.{key}");
            namespace.sysctls.push(sysctl(&key, "0"));
        }
    }
    connect(&mut plan, ("one", "eth0"), ("two", "eth0"));
    add_neighbours(&mut plan);
    let client = &mut plan.namespaces[0];
    client.routes.push(default_route(TWO6));
    client.iptables = Some(Iptables {
        backend: Backend::Nft,
        v4: Input::default(),
        v6: Input::from_text(format!(
            "*nat\n-A OUTPUT -d {SERVICE6}/128 -p tcp -m tcp --dport 80 -j DNAT --to-destination [{TWO6}]:{PORT}\nCOMMIT\n"
        )),
    });
    with_probe(plan, SERVICE6, 80, MAX_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::evidence::Attempt;

    #[test]
    fn feature_check_plans_are_consistent() {
        for trial in all_checks() {
            let plan = &trial.plan;
            let has = |name: &str| plan.namespace(name).is_some();
            for namespace in &plan.namespaces {
                for link in &namespace.links {
                    if let LinkKind::Veth {
                        namespace: far,
                        peer,
                    } = &link.kind
                    {
                        let far = plan.namespace(far).expect(trial.name);
                        let peer_link = far.links.iter().find(|link| link.name == *peer);
                        let back = LinkKind::Veth {
                            namespace: namespace.name.clone(),
                            peer: link.name.clone(),
                        };
                        assert_eq!(
                            peer_link.map(|other| &other.kind),
                            Some(&back),
                            "{}",
                            trial.name
                        );
                    }
                }
            }
            assert!(plan.servers.iter().all(|server| has(&server.namespace)));
            assert!(plan.probes().all(|probe| has(&probe.namespace)));
        }
    }

    #[test]
    fn feature_check_other_result_returns_error() {
        let trial = &all_checks()[1];
        let mut evidence = StageEvidence {
            attempts: vec![Attempt {
                idle: None,
                settled: false,
                probe: "call".to_owned(),
                index: 0,
                verdict: Verdict::Connected,
                endpoint: None,
                seen_source: None,
                further_answers: Vec::new(),
                progress: None,
                local_address: None,
                duration: Duration::ZERO,
                error: None,
            }],
            ..StageEvidence::default()
        };
        let message = trial.judge(&evidence).unwrap_err();
        assert_eq!(message, "no packet of two was captured");
        evidence.attempts[0].verdict = Verdict::Timeout;
        let message = trial.judge(&evidence).unwrap_err();
        assert_eq!(
            message,
            "a connection has the verdict timeout instead of connected"
        );
        let drop_check = all_checks()
            .into_iter()
            .find(|trial| trial.drop_reason.is_some());
        let drop_check = drop_check.expect("one check traces drops");
        evidence.attempts[0].verdict = Verdict::Refused;
        let message = drop_check.judge(&evidence).unwrap_err();
        assert_eq!(
            message,
            "the kernel reported no drop with the reason NO_SOCKET"
        );
        evidence.drops = DropEvidence::Uncertain("not traced".to_owned());
        assert_eq!(drop_check.judge(&evidence).unwrap_err(), "not traced");
        evidence.attempts.clear();
        let message = trial.judge(&evidence).unwrap_err();
        assert_eq!(message, "0 of 1 probes ran");
    }
}
