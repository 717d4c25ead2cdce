//! Computes which UDP conntrack entries kube-proxy deletes when services or endpoints change.
//! Without the deletion, a flow would continue to a removed endpoint or to no endpoint.
//!
//! Up to v1.31, kube-proxy deletes entries of the services and endpoints that changed
//! (`detectStaleConnections` of `pkg/proxy/endpoints.go`, `deleteEndpointConnections` and the end
//! of `syncProxyRules` in `pkg/proxy/{iptables,ipvs}/proxier.go`, v1.13.4, v1.15.5 and v1.21.2;
//! `pkg/proxy/conntrack/cleanup.go` v1.30.5). From v1.32 on, it deletes every entry that does not
//! lead to a serving endpoint (`CleanStaleEntries` in the same file, v1.36.2). It deletes no TCP
//! entries: a connection continues to its endpoint as long as the endpoint answers. The handling of
//! SCTP entries is not modelled.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::endpoints::{Endpoint, EndpointMap};
use super::history::{
    CONNTRACK_BOTH_PORTS, CONNTRACK_BY_PORT, CONNTRACK_EXTERNAL_IPS, CONNTRACK_IPVS_NODE_PORTS,
    CONNTRACK_LOAD_BALANCER_IPS, CONNTRACK_NEW_LOAD_BALANCER_IPS, CONNTRACK_NEW_NODE_PORTS,
    CONNTRACK_READY, CONNTRACK_RECONCILED, CONNTRACK_SERVING,
};
use super::services::{Protocol, ServicePort, service_ports};
use super::{Family, KubeProxy, KubeProxyError, Mode, Objects, Version};
use svclab_model::plan::{AnsweredBy, Forget};

/// Returns the conntrack entries that `proxy` deletes for `family` when the objects change from
/// `before` to `after`. All changes of one call belong to one sync.
///
/// # Errors
///
/// Returns a [`KubeProxyError`] if an object is invalid.
pub fn stale(
    proxy: &KubeProxy,
    before: &Objects<'_>,
    after: &Objects<'_>,
    family: Family,
) -> Result<BTreeSet<Forget>, KubeProxyError> {
    let version = proxy.version;
    let read = |objects: &Objects<'_>| {
        let ports = service_ports(objects.services, version, family)?;
        let endpoints = EndpointMap::new(objects.endpoint_slices, objects.node, version, family)?;
        let udp = ports
            .into_iter()
            .filter(|port| port.protocol == Protocol::Udp)
            .map(|port| {
                let of_port = endpoints.of(&port).to_vec();
                (port.name.clone(), (port, of_port))
            });
        Ok::<_, KubeProxyError>(udp.collect::<Known>())
    };
    let work = Work {
        version,
        mode: proxy.mode,
        v6: family == Family::V6,
        before: read(before)?,
        after: read(after)?,
    };
    Ok(if version.has(&CONNTRACK_RECONCILED) {
        work.reconciled()
    } else {
        work.of_events()
    })
}

/// UDP service ports by name, each with its endpoints.
type Known = BTreeMap<String, (ServicePort, Vec<Endpoint>)>;

struct Work {
    version: Version,
    mode: Mode,
    v6: bool,
    before: Known,
    after: Known,
}

impl Work {
    /// Returns filters for entries that lead to no serving endpoint. Entries of a service without
    /// serving endpoints are kept.
    fn reconciled(&self) -> BTreeSet<Forget> {
        let mut all = BTreeSet::new();
        for (port, endpoints) in self.after.values() {
            let mut serving: Vec<SocketAddr> = endpoints
                .iter()
                .filter(|endpoint| endpoint.serving)
                .map(|endpoint| endpoint.address)
                .collect();
            serving.sort_unstable();
            if serving.is_empty() {
                continue;
            }
            let by = if self.version.has(&CONNTRACK_BY_PORT) {
                AnsweredBy::NoPortOf(serving)
            } else {
                AnsweredBy::NoneOf(serving.iter().map(SocketAddr::ip).collect())
            };
            let addresses = [port.cluster_ip].into_iter();
            let addresses = addresses
                .chain(port.load_balancer_ips.iter().copied())
                .chain(port.external_ips.iter().copied());
            all.extend(
                addresses.map(|address| self.forget(Some(address), Some(port.port), by.clone())),
            );
            if let Some(node_port) = port.node_port {
                all.insert(self.forget(None, Some(node_port), by));
            }
        }
        all
    }

    /// Returns filters for entries of removed services and endpoints, and of services that had no
    /// endpoints and now have some.
    fn of_events(&self) -> BTreeSet<Forget> {
        let mut all = BTreeSet::new();
        for (name, (port, _)) in &self.before {
            if !self.after.contains_key(name) {
                all.insert(self.forget(Some(port.cluster_ip), None, AnsweredBy::Anyone));
            }
        }
        let none = Vec::new();
        for (name, (port, endpoints)) in &self.after {
            let old = self.before.get(name).map_or(&none, |(_, old)| old);
            let took = |endpoints: &[Endpoint]| endpoints.iter().any(|one| self.takes_traffic(one));
            if took(endpoints) && !took(old) {
                self.newly_active(port, &mut all);
            }
            for gone in old.iter().filter(|old| self.is_gone(old, endpoints)) {
                self.endpoint_went(port, gone.ip(), &mut all);
            }
        }
        all
    }

    /// Whether flows can lead to an endpoint, according to this version.
    fn takes_traffic(&self, endpoint: &Endpoint) -> bool {
        if self.version.has(&CONNTRACK_SERVING) {
            endpoint.serving
        } else if self.version.has(&CONNTRACK_READY) {
            endpoint.ready
        } else {
            // Every endpoint that the version keeps.
            true
        }
    }

    fn is_gone(&self, old: &Endpoint, now: &[Endpoint]) -> bool {
        let same = |new: &Endpoint| {
            new.address == old.address
                && (self.version.has(&CONNTRACK_SERVING)
                    || new.local == old.local
                        && (!self.version.has(&CONNTRACK_READY) || new.ready == old.ready))
        };
        self.takes_traffic(old) && !now.iter().any(same)
    }

    fn newly_active(&self, port: &ServicePort, all: &mut BTreeSet<Forget>) {
        let has = |change| self.version.has(change);
        let mut addresses = vec![port.cluster_ip];
        if has(&CONNTRACK_EXTERNAL_IPS) {
            addresses.extend(&port.external_ips);
        }
        if has(&CONNTRACK_NEW_LOAD_BALANCER_IPS) {
            addresses.extend(&port.load_balancer_ips);
        }
        let whole = |address| self.forget(Some(address), None, AnsweredBy::Anyone);
        all.extend(addresses.into_iter().map(whole));
        if let Some(node_port) = port.node_port
            && has(&CONNTRACK_NEW_NODE_PORTS)
            && self.minds_node_ports()
        {
            all.insert(self.forget(None, Some(node_port), AnsweredBy::Anyone));
        }
    }

    fn endpoint_went(&self, port: &ServicePort, gone: IpAddr, all: &mut BTreeSet<Forget>) {
        let has = |change| self.version.has(change);
        let by = AnsweredBy::One(gone);
        let node_port = port
            .node_port
            .filter(|_| has(&CONNTRACK_EXTERNAL_IPS) && self.minds_node_ports());
        let mut addresses = Vec::new();
        if node_port.is_none() || has(&CONNTRACK_BOTH_PORTS) {
            addresses.push(port.cluster_ip);
        }
        if has(&CONNTRACK_EXTERNAL_IPS) {
            addresses.extend(&port.external_ips);
        }
        if has(&CONNTRACK_LOAD_BALANCER_IPS) {
            addresses.extend(&port.load_balancer_ips);
        }
        let whole = |address| self.forget(Some(address), None, by.clone());
        all.extend(addresses.into_iter().map(whole));
        if let Some(node_port) = node_port {
            all.insert(self.forget(None, Some(node_port), by));
        }
    }

    fn minds_node_ports(&self) -> bool {
        self.mode != Mode::Ipvs || self.version.has(&CONNTRACK_IPVS_NODE_PORTS)
    }

    fn forget(&self, destination: Option<IpAddr>, port: Option<u16>, by: AnsweredBy) -> Forget {
        Forget {
            v6: self.v6,
            destination,
            port,
            by,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1 as core;
    use k8s_openapi::api::discovery::v1 as discovery;
    use serde_json::json;

    use super::*;

    /// Returns a DNS service and its endpoints, each with the conditions ready, serving and
    /// terminating.
    fn objects(
        kind: &str,
        endpoints: &[(&str, [bool; 3])],
    ) -> (core::Service, discovery::EndpointSlice) {
        let service = json!({
            "metadata": {"name": "dns", "namespace": "default"},
            "spec": {
                "type": kind,
                "clusterIP": "10.96.0.10",
                "clusterIPs": ["10.96.0.10"],
                "externalIPs": ["192.0.2.10"],
                "ports": [{"name": "dns", "protocol": "UDP", "port": 53, "targetPort": 5353,
                           "nodePort": if kind == "NodePort" { 30053 } else { 0 }}],
            },
        });
        let endpoints: Vec<_> = endpoints
            .iter()
            .map(|(ip, [ready, serving, terminating])| {
                json!({"addresses": [ip], "conditions":
                    {"ready": ready, "serving": serving, "terminating": terminating}})
            })
            .collect();
        let slice = json!({
            "metadata": {"name": "dns-1", "namespace": "default",
                         "labels": {"kubernetes.io/service-name": "dns"}},
            "addressType": "IPv4",
            "ports": [{"name": "dns", "protocol": "UDP", "port": 5353}],
            "endpoints": endpoints,
        });
        (
            serde_json::from_value(service).unwrap(),
            serde_json::from_value(slice).unwrap(),
        )
    }

    fn seen(
        (services, slices): &(Vec<core::Service>, Vec<discovery::EndpointSlice>),
    ) -> Objects<'_> {
        Objects {
            node: "node-1",
            nodes: &[],
            services,
            endpoint_slices: slices,
            service_cidrs: &[],
            interface_addresses: &[],
        }
    }

    const UP: [bool; 3] = [true, true, false];
    const LEAVING: [bool; 3] = [false, true, true];

    fn told(
        version: &str,
        mode: Mode,
        kind: &str,
        before: Option<&[(&str, [bool; 3])]>,
        after: Option<&[(&str, [bool; 3])]>,
    ) -> Vec<String> {
        type All = (Vec<core::Service>, Vec<discovery::EndpointSlice>);
        let all = |endpoints: Option<&[(&str, [bool; 3])]>| -> All {
            let both = endpoints.map(|endpoints| objects(kind, endpoints));
            both.into_iter().unzip()
        };
        let (old, new) = (all(before), all(after));
        let mut proxy = KubeProxy::new(version.parse().unwrap());
        proxy.mode = mode;
        stale(&proxy, &seen(&old), &seen(&new), Family::V4)
            .unwrap()
            .iter()
            .map(|forget| forget.to_string().replace("conntrack -D -p udp ", ""))
            .collect()
    }

    fn iptables(
        version: &str,
        before: Option<&[(&str, [bool; 3])]>,
        after: Option<&[(&str, [bool; 3])]>,
    ) -> Vec<String> {
        told(version, Mode::Iptables, "ClusterIP", before, after)
    }

    #[test]
    fn what_led_to_an_endpoint_that_went_is_forgotten() {
        let (two, one): (&[_], &[_]) = (
            &[("10.244.1.5", UP), ("10.244.2.5", UP)],
            &[("10.244.2.5", UP)],
        );
        assert_eq!(
            iptables("v1.9", Some(two), Some(one)),
            ["--orig-dst 10.96.0.10 --dst-nat 10.244.1.5"]
        );
        for version in ["v1.15", "v1.20.2", "v1.21", "v1.28", "v1.30"] {
            assert_eq!(
                iptables(version, Some(two), Some(one)),
                [
                    "--orig-dst 10.96.0.10 --dst-nat 10.244.1.5",
                    "--orig-dst 192.0.2.10 --dst-nat 10.244.1.5"
                ],
                "{version}"
            );
        }
        assert_eq!(
            iptables("v1.32", Some(two), Some(one)),
            [
                "--orig-dst 10.96.0.10 --orig-port-dst 53, unless answered by 10.244.2.5",
                "--orig-dst 192.0.2.10 --orig-port-dst 53, unless answered by 10.244.2.5"
            ]
        );
        assert_eq!(
            iptables("v1.36", Some(two), Some(one))[0],
            "--orig-dst 10.96.0.10 --orig-port-dst 53, unless answered by 10.244.2.5:5353"
        );
    }

    #[test]
    fn a_node_port_stood_for_the_cluster_ip_before_1_20_and_ipvs_minds_it_from_1_28() {
        let (two, one): (&[_], &[_]) = (
            &[("10.244.1.5", UP), ("10.244.2.5", UP)],
            &[("10.244.2.5", UP)],
        );
        let both = |version, mode| told(version, mode, "NodePort", Some(two), Some(one));
        let port = "--orig-port-dst 30053 --dst-nat 10.244.1.5".to_owned();
        let own = "--orig-dst 10.96.0.10 --dst-nat 10.244.1.5".to_owned();
        for (version, mode, wanted) in [
            ("v1.15", Mode::Iptables, (true, false)),
            ("v1.20.2", Mode::Iptables, (true, true)),
            ("v1.20", Mode::Ipvs, (false, true)),
            ("v1.27", Mode::Ipvs, (false, true)),
            ("v1.28", Mode::Ipvs, (true, true)),
        ] {
            let told = both(version, mode);
            assert_eq!(
                (told.contains(&port), told.contains(&own)),
                wanted,
                "{version} {mode}: {told:?}"
            );
        }
    }

    #[test]
    fn an_endpoint_that_leaves_and_serves_kept_its_flows_in_1_21_and_does_from_1_29() {
        let (before, after): (&[_], &[_]) = (
            &[("10.244.1.5", UP), ("10.244.2.5", UP)],
            &[("10.244.1.5", LEAVING), ("10.244.2.5", UP)],
        );
        for (version, forgets) in [
            // Up to v1.20, unready endpoints are not kept.
            ("v1.20.2", true),
            ("v1.21", false),
            ("v1.22", true),
            ("v1.28", true),
            ("v1.29", false),
            ("v1.31", false),
        ] {
            let told = iptables(version, Some(before), Some(after));
            assert_eq!(!told.is_empty(), forgets, "{version}: {told:?}");
        }
        // From v1.32 on, the endpoint is among those that may answer.
        let told = iptables("v1.32", Some(before), Some(after));
        assert!(told[0].ends_with("unless answered by 10.244.1.5, 10.244.2.5"));
    }

    #[test]
    fn what_went_nowhere_is_forgotten_when_the_first_endpoint_comes() {
        let (none, one): (&[_], &[_]) = (&[], &[("10.244.2.5", UP)]);
        let told = |version| told(version, Mode::Iptables, "NodePort", Some(none), Some(one));
        let (own, port) = ("--orig-dst 10.96.0.10", "--orig-port-dst 30053");
        assert_eq!(told("v1.9"), [own]);
        assert!(!told("v1.20").contains(&port.to_owned()));
        assert!(told("v1.21").contains(&port.to_owned()));
        assert!(told("v1.21").contains(&own.to_owned()));
    }

    #[test]
    fn a_service_that_went_took_its_flows_with_it_up_to_1_31() {
        let one: &[_] = &[("10.244.2.5", UP)];
        assert_eq!(
            iptables("v1.20", Some(one), None),
            ["--orig-dst 10.96.0.10"]
        );
        assert_eq!(iptables("v1.32", Some(one), None), Vec::<String>::new());
    }

    #[test]
    fn a_service_that_lost_its_last_endpoint_keeps_its_flows_from_1_32_on() {
        let (one, none): (&[_], &[_]) = (&[("10.244.2.5", UP)], &[]);
        assert_eq!(iptables("v1.31", Some(one), Some(none)).len(), 2);
        assert_eq!(
            iptables("v1.36", Some(one), Some(none)),
            Vec::<String>::new()
        );
    }
}
