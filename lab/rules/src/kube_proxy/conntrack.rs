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
use super::services::{ServicePort, service_ports};
use super::{Family, KubeProxy, KubeProxyError, Mode, Objects, Version};
use svclab_model::plan::{ConntrackFilter, ReplySource};
use svclab_ruleset::Protocol;

/// Returns the conntrack entries that `proxy` deletes for `family` when the objects change from
/// `before` to `after`. All changes of one call belong to one sync.
///
/// # Errors
///
/// Returns a [`KubeProxyError`] if an object is invalid.
pub fn stale_entries(
    proxy: &KubeProxy,
    before: &Objects<'_>,
    after: &Objects<'_>,
    family: Family,
) -> Result<BTreeSet<ConntrackFilter>, KubeProxyError> {
    let version = proxy.version;
    let read_ports = |objects: &Objects<'_>| {
        let ports = service_ports(objects.services, version, family)?;
        let endpoints = EndpointMap::new(objects, &ports, version, family)?;
        let udp = ports
            .into_iter()
            .filter(|port| port.protocol == Protocol::Udp)
            .map(|port| {
                let port_endpoints = endpoints.get(&port).to_vec();
                (port.name.clone(), (port, port_endpoints))
            });
        Ok::<_, KubeProxyError>(udp.collect::<UdpPorts>())
    };
    let cleanup = ConntrackCleanup {
        version,
        mode: proxy.mode,
        v6: family == Family::V6,
        before: read_ports(before)?,
        after: read_ports(after)?,
    };
    Ok(if version.has(&CONNTRACK_RECONCILED) {
        cleanup.filters_by_state()
    } else {
        cleanup.filters_by_event()
    })
}

/// UDP service ports by name, each with its endpoints.
type UdpPorts = BTreeMap<String, (ServicePort, Vec<Endpoint>)>;

struct ConntrackCleanup {
    version: Version,
    mode: Mode,
    v6: bool,
    before: UdpPorts,
    after: UdpPorts,
}

impl ConntrackCleanup {
    /// Returns filters for entries that lead to no serving endpoint. Entries of a service without
    /// serving endpoints are kept.
    fn filters_by_state(&self) -> BTreeSet<ConntrackFilter> {
        let mut filters = BTreeSet::new();
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
            let reply_source = if self.version.has(&CONNTRACK_BY_PORT) {
                ReplySource::NotSockets(serving)
            } else {
                ReplySource::NotAddresses(serving.iter().map(SocketAddr::ip).collect())
            };
            let addresses = [port.cluster_ip].into_iter();
            let addresses = addresses
                .chain(port.load_balancer_ips.iter().copied())
                .chain(port.external_ips.iter().copied());
            filters.extend(
                addresses.map(|address| {
                    self.filter(Some(address), Some(port.port), reply_source.clone())
                }),
            );
            if let Some(node_port) = port.node_port {
                filters.insert(self.filter(None, Some(node_port), reply_source));
            }
        }
        filters
    }

    /// Returns filters for entries of removed services and endpoints, and of services that had no
    /// endpoints and now have some.
    fn filters_by_event(&self) -> BTreeSet<ConntrackFilter> {
        let mut filters = BTreeSet::new();
        for (name, (port, _)) in &self.before {
            if !self.after.contains_key(name) {
                filters.insert(self.filter(Some(port.cluster_ip), None, ReplySource::Any));
            }
        }
        let none = Vec::new();
        for (name, (port, endpoints)) in &self.after {
            let old = self.before.get(name).map_or(&none, |(_, old)| old);
            let has_receiver = |endpoints: &[Endpoint]| {
                endpoints
                    .iter()
                    .any(|endpoint| self.can_receive_traffic(endpoint))
            };
            if has_receiver(endpoints) && !has_receiver(old) {
                self.add_first_endpoint_filters(port, &mut filters);
            }
            for removed in old.iter().filter(|old| self.is_removed(old, endpoints)) {
                self.add_removed_endpoint_filters(port, removed.ip(), &mut filters);
            }
        }
        filters
    }

    /// Whether flows can lead to an endpoint, according to this version.
    fn can_receive_traffic(&self, endpoint: &Endpoint) -> bool {
        if self.version.has(&CONNTRACK_SERVING) {
            endpoint.serving
        } else if self.version.has(&CONNTRACK_READY) {
            endpoint.ready
        } else {
            // Every endpoint that the version keeps.
            true
        }
    }

    fn is_removed(&self, old: &Endpoint, now: &[Endpoint]) -> bool {
        let same = |new: &Endpoint| {
            new.address == old.address
                && (self.version.has(&CONNTRACK_SERVING)
                    || new.local == old.local
                        && (!self.version.has(&CONNTRACK_READY) || new.ready == old.ready))
        };
        self.can_receive_traffic(old) && !now.iter().any(same)
    }

    fn add_first_endpoint_filters(
        &self,
        port: &ServicePort,
        filters: &mut BTreeSet<ConntrackFilter>,
    ) {
        let has = |change| self.version.has(change);
        let mut addresses = vec![port.cluster_ip];
        if has(&CONNTRACK_EXTERNAL_IPS) {
            addresses.extend(&port.external_ips);
        }
        if has(&CONNTRACK_NEW_LOAD_BALANCER_IPS) {
            addresses.extend(&port.load_balancer_ips);
        }
        let filter_address = |address| self.filter(Some(address), None, ReplySource::Any);
        filters.extend(addresses.into_iter().map(filter_address));
        if let Some(node_port) = port.node_port
            && has(&CONNTRACK_NEW_NODE_PORTS)
            && self.has_node_port_entries()
        {
            filters.insert(self.filter(None, Some(node_port), ReplySource::Any));
        }
    }

    fn add_removed_endpoint_filters(
        &self,
        port: &ServicePort,
        removed_ip: IpAddr,
        filters: &mut BTreeSet<ConntrackFilter>,
    ) {
        let has = |change| self.version.has(change);
        let reply_source = ReplySource::Address(removed_ip);
        let node_port = port
            .node_port
            .filter(|_| has(&CONNTRACK_EXTERNAL_IPS) && self.has_node_port_entries());
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
        let filter_address = |address| self.filter(Some(address), None, reply_source.clone());
        filters.extend(addresses.into_iter().map(filter_address));
        if let Some(node_port) = node_port {
            filters.insert(self.filter(None, Some(node_port), reply_source));
        }
    }

    fn has_node_port_entries(&self) -> bool {
        self.mode != Mode::Ipvs || self.version.has(&CONNTRACK_IPVS_NODE_PORTS)
    }

    fn filter(
        &self,
        destination: Option<IpAddr>,
        port: Option<u16>,
        reply_source: ReplySource,
    ) -> ConntrackFilter {
        ConntrackFilter {
            v6: self.v6,
            destination,
            port,
            reply_source,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects::{EndpointSlice, Service};

    /// Returns a DNS service and its endpoints, each with the conditions ready, serving and
    /// terminating.
    fn objects(kind: &str, endpoints: &[(&str, [bool; 3])]) -> (Service, EndpointSlice) {
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

    fn objects_of((services, slices): &(Vec<Service>, Vec<EndpointSlice>)) -> Objects<'_> {
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

    fn deleted_entries(
        version: &str,
        mode: Mode,
        kind: &str,
        before: Option<&[(&str, [bool; 3])]>,
        after: Option<&[(&str, [bool; 3])]>,
    ) -> Vec<String> {
        type All = (Vec<Service>, Vec<EndpointSlice>);
        let lists = |endpoints: Option<&[(&str, [bool; 3])]>| -> All {
            let both = endpoints.map(|endpoints| objects(kind, endpoints));
            both.into_iter().unzip()
        };
        let (old, new) = (lists(before), lists(after));
        let mut proxy = KubeProxy::new(version.parse().unwrap());
        proxy.mode = mode;
        stale_entries(&proxy, &objects_of(&old), &objects_of(&new), Family::V4)
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
        deleted_entries(version, Mode::Iptables, "ClusterIP", before, after)
    }

    #[test]
    fn stale_removed_endpoint_deletes_its_entries() {
        let (both_endpoints, left_endpoint): (&[_], &[_]) = (
            &[("10.244.1.5", UP), ("10.244.2.5", UP)],
            &[("10.244.2.5", UP)],
        );
        assert_eq!(
            iptables("v1.9", Some(both_endpoints), Some(left_endpoint)),
            ["--orig-dst 10.96.0.10 --dst-nat 10.244.1.5"]
        );
        for version in ["v1.15", "v1.20.2", "v1.21", "v1.28", "v1.30"] {
            assert_eq!(
                iptables(version, Some(both_endpoints), Some(left_endpoint)),
                [
                    "--orig-dst 10.96.0.10 --dst-nat 10.244.1.5",
                    "--orig-dst 192.0.2.10 --dst-nat 10.244.1.5"
                ],
                "{version}"
            );
        }
        assert_eq!(
            iptables("v1.32", Some(both_endpoints), Some(left_endpoint)),
            [
                "--orig-dst 10.96.0.10 --orig-port-dst 53, unless answered by 10.244.2.5",
                "--orig-dst 192.0.2.10 --orig-port-dst 53, unless answered by 10.244.2.5"
            ]
        );
        assert_eq!(
            iptables("v1.36", Some(both_endpoints), Some(left_endpoint))[0],
            "--orig-dst 10.96.0.10 --orig-port-dst 53, unless answered by 10.244.2.5:5353"
        );
    }

    #[test]
    fn stale_node_port_entries_depend_on_version_and_mode() {
        let (both_endpoints, left_endpoint): (&[_], &[_]) = (
            &[("10.244.1.5", UP), ("10.244.2.5", UP)],
            &[("10.244.2.5", UP)],
        );
        let deleted_on_removal = |version, mode| {
            deleted_entries(
                version,
                mode,
                "NodePort",
                Some(both_endpoints),
                Some(left_endpoint),
            )
        };
        let node_port_entry = "--orig-port-dst 30053 --dst-nat 10.244.1.5".to_owned();
        let cluster_ip_entry = "--orig-dst 10.96.0.10 --dst-nat 10.244.1.5".to_owned();
        for (version, mode, expected) in [
            ("v1.15", Mode::Iptables, (true, false)),
            ("v1.20.2", Mode::Iptables, (true, true)),
            ("v1.20", Mode::Ipvs, (false, true)),
            ("v1.27", Mode::Ipvs, (false, true)),
            ("v1.28", Mode::Ipvs, (true, true)),
        ] {
            let deleted = deleted_on_removal(version, mode);
            assert_eq!(
                (
                    deleted.contains(&node_port_entry),
                    deleted.contains(&cluster_ip_entry)
                ),
                expected,
                "{version} {mode}: {deleted:?}"
            );
        }
    }

    #[test]
    fn stale_serving_terminating_endpoint_by_version() {
        let (before, after): (&[_], &[_]) = (
            &[("10.244.1.5", UP), ("10.244.2.5", UP)],
            &[("10.244.1.5", LEAVING), ("10.244.2.5", UP)],
        );
        for (version, deletes) in [
            // Up to v1.20, unready endpoints are not kept.
            ("v1.20.2", true),
            ("v1.21", false),
            ("v1.22", true),
            ("v1.28", true),
            ("v1.29", false),
            ("v1.31", false),
        ] {
            let deleted = iptables(version, Some(before), Some(after));
            assert_eq!(!deleted.is_empty(), deletes, "{version}: {deleted:?}");
        }
        // From v1.32 on, the endpoint is among those that may answer.
        let deleted = iptables("v1.32", Some(before), Some(after));
        assert!(deleted[0].ends_with("unless answered by 10.244.1.5, 10.244.2.5"));
    }

    #[test]
    fn stale_first_endpoint_deletes_service_entries() {
        let (no_endpoints, single_endpoint): (&[_], &[_]) = (&[], &[("10.244.2.5", UP)]);
        let deleted_on_start = |version| {
            deleted_entries(
                version,
                Mode::Iptables,
                "NodePort",
                Some(no_endpoints),
                Some(single_endpoint),
            )
        };
        let (cluster_ip_entry, node_port_entry) =
            ("--orig-dst 10.96.0.10", "--orig-port-dst 30053");
        assert_eq!(deleted_on_start("v1.9"), [cluster_ip_entry]);
        assert!(!deleted_on_start("v1.20").contains(&node_port_entry.to_owned()));
        assert!(deleted_on_start("v1.21").contains(&node_port_entry.to_owned()));
        assert!(deleted_on_start("v1.21").contains(&cluster_ip_entry.to_owned()));
    }

    #[test]
    fn stale_removed_service_up_to_1_31_deletes_entries() {
        let single_endpoint: &[_] = &[("10.244.2.5", UP)];
        assert_eq!(
            iptables("v1.20", Some(single_endpoint), None),
            ["--orig-dst 10.96.0.10"]
        );
        assert_eq!(
            iptables("v1.32", Some(single_endpoint), None),
            Vec::<String>::new()
        );
    }

    #[test]
    fn stale_without_endpoints_from_1_32_keeps_entries() {
        let (single_endpoint, no_endpoints): (&[_], &[_]) = (&[("10.244.2.5", UP)], &[]);
        assert_eq!(
            iptables("v1.31", Some(single_endpoint), Some(no_endpoints)).len(),
            2
        );
        assert_eq!(
            iptables("v1.36", Some(single_endpoint), Some(no_endpoints)),
            Vec::<String>::new()
        );
    }
}
