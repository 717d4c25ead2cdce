//! Resolves the names of probe sources and targets: `pod/default/client`, `node-1`,
//! `lb/default/nginx:443`, `10.0.0.1:80`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1 as core;
use svclab_rules::service::{cluster_ips, external_ips, ingress_ips, name_of, namespace_of};

use super::Cluster;
use svclab_diagnostic::suggest::suggest;

/// A parsed name of an object or address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Name {
    /// `pod/NAMESPACE/NAME`: the addresses of a pod.
    Pod(String, String),
    /// `node/NAME`, `host/NAME` or `NAME`: the addresses of a node or host.
    Machine(String),
    /// `service/NAMESPACE/NAME`, or `svc/…` as in kubectl: the cluster IPs of a service.
    Service(String, String),
    /// `lb/NAMESPACE/NAME`: the load balancer addresses of a service.
    LoadBalancer(String, String),
    /// `external/NAMESPACE/NAME`: the external IPs of a service.
    External(String, String),
    /// An IP address.
    Address(IpAddr),
}

/// A name with an optional port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Name without the port.
    pub name: Name,
    /// Port, by number or by its name in the service.
    pub port: Option<String>,
}

/// Reason why a text is not a valid name in this case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct NameError {
    /// Error message.
    pub message: String,
    /// Suggested name or notation.
    pub help: Option<String>,
}

impl NameError {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(namespace, name) => write!(f, "pod/{namespace}/{name}"),
            Self::Machine(name) => f.write_str(name),
            Self::Service(namespace, name) => write!(f, "service/{namespace}/{name}"),
            Self::LoadBalancer(namespace, name) => write!(f, "lb/{namespace}/{name}"),
            Self::External(namespace, name) => write!(f, "external/{namespace}/{name}"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

impl Reference {
    /// Parses a name in the notation of users. Does not check whether the object exists.
    ///
    /// # Errors
    ///
    /// Fails if the text has none of the forms of a name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self {
                name: Name::Address(address),
                port: None,
            });
        }
        if let Ok(socket) = text.parse::<SocketAddr>() {
            return Ok(Self {
                name: Name::Address(socket.ip()),
                port: Some(socket.port().to_string()),
            });
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) => (name, Some(port.to_owned())),
            None => (text, None),
        };
        if port.as_deref() == Some("") || name.is_empty() {
            return Err(NameError::new(format!(
                "`{text}` names nothing; write for example `pod/default/web:80`"
            )));
        }
        if let Ok(address) = name.parse::<IpAddr>() {
            return Ok(Self {
                name: Name::Address(address),
                port,
            });
        }
        let parts: Vec<&str> = name.split('/').collect();
        let two = |make: fn(String, String) -> Name, namespace: &str, name: &str| {
            make(namespace.to_owned(), name.to_owned())
        };
        let name = match parts.as_slice() {
            ["pod", namespace, name] => two(Name::Pod, namespace, name),
            ["service" | "svc", namespace, name] => two(Name::Service, namespace, name),
            ["lb", namespace, name] => two(Name::LoadBalancer, namespace, name),
            ["external", namespace, name] => two(Name::External, namespace, name),
            ["node" | "host", name] | [name] => Name::Machine((*name).to_owned()),
            [kind @ ("pod" | "service" | "svc" | "lb" | "external"), name] => {
                return Err(NameError {
                    message: format!("`{kind}/{name}` lacks its namespace"),
                    help: Some(format!("write `{kind}/default/{name}`")),
                });
            }
            _ => {
                return Err(NameError::new(format!(
                    "`{text}` is no name svclab knows; names are pod/NAMESPACE/NAME, service/NAMESPACE/NAME, \
                     lb/NAMESPACE/NAME, external/NAMESPACE/NAME, a node, a host, or an address"
                )));
            }
        };
        Ok(Self { name, port })
    }
}

impl Cluster {
    /// Returns all names of objects with addresses, for suggestions.
    fn known(&self) -> Vec<String> {
        let service = |kind: &str, service: &core::Service| {
            format!("{kind}/{}/{}", namespace_of(service), name_of(service))
        };
        self.pods
            .iter()
            .map(super::Pod::reference)
            .chain(self.nodes.iter().map(|node| node.name.clone()))
            .chain(self.hosts.iter().map(|host| host.name.clone()))
            .chain(self.services.iter().map(|each| service("service", each)))
            .chain(
                self.services
                    .iter()
                    .filter(|each| !ingress_ips(each).is_empty())
                    .map(|each| service("lb", each)),
            )
            .chain(
                self.services
                    .iter()
                    .filter(|each| !external_ips(each).is_empty())
                    .map(|each| service("external", each)),
            )
            .collect()
    }

    fn unknown(&self, what: &str, name: &Name) -> NameError {
        let known = self.known();
        let written = name.to_string();
        let near = suggest(&written, known.iter().map(String::as_str));
        NameError {
            message: format!("there is no {what} `{written}`"),
            help: near.map(|near| format!("did you mean `{near}`?")),
        }
    }

    /// Returns the addresses of a name, at least one.
    ///
    /// # Errors
    ///
    /// Fails if no object has the name, or if the object has no address.
    pub fn addresses(&self, name: &Name) -> Result<Vec<IpAddr>, NameError> {
        let found = match name {
            Name::Address(address) => vec![*address],
            Name::Pod(namespace, pod) => self
                .pods
                .iter()
                .find(|each| each.namespace == *namespace && each.name == *pod)
                .ok_or_else(|| self.unknown("pod", name))?
                .ips
                .clone(),
            Name::Machine(machine) => {
                let node = self.nodes.iter().find(|node| node.name == *machine);
                let host = self.hosts.iter().find(|host| host.name == *machine);
                match (node, host) {
                    (Some(node), _) => node
                        .addresses
                        .iter()
                        .map(ipnetwork::IpNetwork::ip)
                        .collect(),
                    (None, Some(host)) => vec![host.address.ip()],
                    (None, None) => return Err(self.unknown("node or host", name)),
                }
            }
            Name::Service(..) => {
                self.addressed(name, "service", "has no cluster IP", cluster_ips)?
            }
            Name::LoadBalancer(..) => self.addressed(
                name,
                "service",
                "has no load balancer address in `status.loadBalancer.ingress`",
                ingress_ips,
            )?,
            Name::External(..) => {
                self.addressed(name, "service", "has no `spec.externalIPs`", external_ips)?
            }
        };
        Ok(found)
    }

    fn addressed(
        &self,
        name: &Name,
        what: &str,
        lacks: &str,
        addresses: fn(&core::Service) -> Vec<IpAddr>,
    ) -> Result<Vec<IpAddr>, NameError> {
        let service = self.service(name).ok_or_else(|| self.unknown(what, name))?;
        let found = addresses(service);
        if found.is_empty() {
            return Err(NameError::new(format!(
                "the service {}/{} {lacks}",
                namespace_of(service),
                name_of(service)
            )));
        }
        Ok(found)
    }

    /// Returns the service of a service, load balancer or external name; `None` for other names.
    #[must_use]
    pub fn service(&self, name: &Name) -> Option<&core::Service> {
        let (Name::Service(namespace, name)
        | Name::LoadBalancer(namespace, name)
        | Name::External(namespace, name)) = name
        else {
            return None;
        };
        self.services
            .iter()
            .find(|each| name_of(each) == name && namespace_of(each) == namespace)
    }

    /// Returns the network namespace from which the packets of a probe source start.
    ///
    /// # Errors
    ///
    /// Fails if no object has the name, or if it is not a pod, node or host.
    pub fn start(&self, text: &str) -> Result<String, NameError> {
        let reference = Reference::parse(text)?;
        match &reference.name {
            _ if reference.port.is_some() => Err(NameError::new(format!(
                "`{text}`: a probe starts at no port of its choice"
            ))),
            Name::Pod(namespace, pod) => self
                .pods
                .iter()
                .find(|each| each.namespace == *namespace && each.name == *pod)
                .map(|pod| self.netns(pod))
                .ok_or_else(|| self.unknown("pod", &reference.name)),
            Name::Machine(machine)
                if self.nodes.iter().any(|node| node.name == *machine)
                    || self.hosts.iter().any(|host| host.name == *machine) =>
            {
                Ok(machine.clone())
            }
            Name::Machine(_) => Err(self.unknown("pod, node or host", &reference.name)),
            _ => Err(NameError::new(format!(
                "`{text}` is nobody who could call; a probe starts at a pod, a node or a host"
            ))),
        }
    }

    /// Returns the short name of the pod, node, host or service with an address; `None` if there is
    /// none.
    #[must_use]
    pub fn name_of(&self, address: IpAddr) -> Option<String> {
        let pod = self
            .pods
            .iter()
            .filter(|pod| !pod.host_network)
            .find(|pod| pod.ips.contains(&address));
        let node = self
            .nodes
            .iter()
            .find(|node| node.addresses.iter().any(|own| own.ip() == address));
        let host = self.hosts.iter().find(|host| host.address.ip() == address);
        let service = |kind: &str, addresses: fn(&core::Service) -> Vec<IpAddr>| {
            self.services
                .iter()
                .find(|each| addresses(each).contains(&address))
                .map(|each| format!("{kind}/{}/{}", namespace_of(each), name_of(each)))
        };
        pod.map(super::Pod::reference)
            .or_else(|| node.map(|node| node.name.clone()))
            .or_else(|| host.map(|host| host.name.clone()))
            .or_else(|| service("service", cluster_ips))
            .or_else(|| service("lb", ingress_ips))
            .or_else(|| service("external", external_ips))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(String, Option<String>), String> {
        Reference::parse(text)
            .map(|reference| (reference.name.to_string(), reference.port))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn names_read_with_and_without_ports() {
        let some = |name: &str, port: &str| Ok((name.to_owned(), Some(port.to_owned())));
        assert_eq!(read("pod/default/web:80"), some("pod/default/web", "80"));
        assert_eq!(read("lb/a/b:https"), some("lb/a/b", "https"));
        assert_eq!(read("node/n1:30443"), some("n1", "30443"));
        assert_eq!(read("10.0.0.1:443"), some("10.0.0.1", "443"));
        assert_eq!(read("[fd00::1]:443"), some("fd00::1", "443"));
        assert_eq!(read("fd00::1"), Ok(("fd00::1".to_owned(), None)));
        assert_eq!(read("laptop"), Ok(("laptop".to_owned(), None)));
    }

    #[test]
    fn what_is_no_name_is_said_to_be_none() {
        for bad in ["", ":80", "pod/web", "web:", "a/b/c", "pod/a/b/c"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert_eq!(
            read("pod/web:80"),
            Err("`pod/web` lacks its namespace".to_owned())
        );
    }
}
