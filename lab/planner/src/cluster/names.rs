//! Resolves the names of probe sources and targets: `pod/default/client`, `node-1`,
//! `lb/default/nginx:443`, `10.0.0.1:80`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use svclab_rules::objects::Service;

use super::Cluster;
use svclab_diagnostic::suggest::suggest;

/// A parsed name of an object or address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ObjectName {
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
    pub name: ObjectName,
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

impl fmt::Display for ObjectName {
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
                name: ObjectName::Address(address),
                port: None,
            });
        }
        if let Ok(socket) = text.parse::<SocketAddr>() {
            return Ok(Self {
                name: ObjectName::Address(socket.ip()),
                port: Some(socket.port().to_string()),
            });
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            return Err(url_error(text, scheme, rest));
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) => (name, Some(port.to_owned())),
            None => (text, None),
        };
        if port.as_deref() == Some("") || name.is_empty() {
            return Err(NameError::new(format!(
                "`{text}` is not a name; write for example `pod/default/web:80`"
            )));
        }
        if let Ok(address) = name.parse::<IpAddr>() {
            return Ok(Self {
                name: ObjectName::Address(address),
                port,
            });
        }
        let parts: Vec<&str> = name.split('/').collect();
        let namespaced = |make: fn(String, String) -> ObjectName, namespace: &str, name: &str| {
            make(namespace.to_owned(), name.to_owned())
        };
        let name = match parts.as_slice() {
            ["pod", namespace, name] => namespaced(ObjectName::Pod, namespace, name),
            ["service" | "svc", namespace, name] => {
                namespaced(ObjectName::Service, namespace, name)
            }
            ["lb", namespace, name] => namespaced(ObjectName::LoadBalancer, namespace, name),
            ["external", namespace, name] => namespaced(ObjectName::External, namespace, name),
            ["node" | "host", name] | [name] => ObjectName::Machine((*name).to_owned()),
            [kind @ ("pod" | "service" | "svc" | "lb" | "external"), name] => {
                return Err(NameError {
                    message: format!("`{kind}/{name}` has no namespace"),
                    help: Some(format!("write `{kind}/default/{name}`")),
                });
            }
            _ => {
                return Err(NameError::new(format!(
                    "`{text}` is not a valid name; names are pod/NAMESPACE/NAME, \
                     service/NAMESPACE/NAME, lb/NAMESPACE/NAME, external/NAMESPACE/NAME, \
                     a node, a host, or an address"
                )));
            }
        };
        Ok(Self { name, port })
    }
}

/// Returns the error of a URL. Its help is the host and the port, without a path.
fn url_error(text: &str, scheme: &str, rest: &str) -> NameError {
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let default_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let port = if has_port { "" } else { default_port };
    NameError {
        message: format!("`{text}` is a URL"),
        help: Some(format!(
            "probes open connections and fetch no URL; write `{host}{port}`"
        )),
    }
}

fn cluster_ips(service: &Service) -> Vec<IpAddr> {
    service.cluster_ips.clone()
}

fn external_ips(service: &Service) -> Vec<IpAddr> {
    service.external_ips.clone()
}

impl Cluster {
    /// Returns all names of objects with addresses, for suggestions.
    fn known_names(&self) -> Vec<String> {
        let service = |kind: &str, service: &Service| format!("{kind}/{}", service.full_name());
        self.pods
            .iter()
            .map(super::Pod::reference)
            .chain(self.nodes.iter().map(|node| node.name.clone()))
            .chain(self.hosts.iter().map(|host| host.name.clone()))
            .chain(self.services.iter().map(|each| service("service", each)))
            .chain(
                self.services
                    .iter()
                    .filter(|each| !each.ingress.is_empty())
                    .map(|each| service("lb", each)),
            )
            .chain(
                self.services
                    .iter()
                    .filter(|each| !each.external_ips.is_empty())
                    .map(|each| service("external", each)),
            )
            .collect()
    }

    /// Returns the notation for a DNS name of a service, or for a service or pod without its kind.
    fn notation_of(&self, name: &ObjectName) -> Option<String> {
        let ObjectName::Machine(written) = name else {
            return None;
        };
        let mut labels = written.split('.');
        let (name, rest) = (labels.next()?, labels.collect::<Vec<_>>());
        let is_named = |namespace: &str, own: &str| {
            own == name
                && match rest.as_slice() {
                    [] => true,
                    [wanted] | [wanted, "svc", ..] => *wanted == namespace,
                    _ => false,
                }
        };
        let service = self
            .services
            .iter()
            .find(|service| is_named(&service.namespace, &service.name));
        let mut pods = self.pods.iter();
        if let Some(service) = service {
            return Some(format!("service/{}", service.full_name()));
        }
        if let [namespace, "svc", ..] = rest.as_slice() {
            return Some(format!("service/{namespace}/{name}"));
        }
        let pod = pods.find(|pod| rest.is_empty() && pod.name == name);
        pod.map(super::Pod::reference)
    }

    fn unknown_name_error(&self, kind: &str, name: &ObjectName) -> NameError {
        let names = self.known_names();
        let written = name.to_string();
        if let Some(notation) = self.notation_of(name) {
            let looked_up = if written.contains('.') {
                "DNS names are not looked up; "
            } else {
                ""
            };
            return NameError {
                message: format!("there is no {kind} `{written}`"),
                help: Some(format!("{looked_up}write `{notation}`")),
            };
        }
        let suggestion = suggest(&written, names.iter().map(String::as_str));
        NameError {
            message: format!("there is no {kind} `{written}`"),
            help: suggestion.map(|near| format!("did you mean `{near}`?")),
        }
    }

    /// Returns the addresses of a name, at least one.
    ///
    /// # Errors
    ///
    /// Fails if no object has the name, or if the object has no address.
    pub fn addresses(&self, name: &ObjectName) -> Result<Vec<IpAddr>, NameError> {
        let addresses = match name {
            ObjectName::Address(address) => vec![*address],
            ObjectName::Pod(namespace, pod) => self
                .pods
                .iter()
                .find(|each| each.namespace == *namespace && each.name == *pod)
                .ok_or_else(|| self.unknown_name_error("pod", name))?
                .ips
                .clone(),
            ObjectName::Machine(machine) => {
                let node = self.nodes.iter().find(|node| node.name == *machine);
                let host = self.hosts.iter().find(|host| host.name == *machine);
                match (node, host) {
                    (Some(node), _) => node
                        .addresses
                        .iter()
                        .map(ipnetwork::IpNetwork::ip)
                        .collect(),
                    (None, Some(host)) => vec![host.address.ip()],
                    (None, None) => return Err(self.unknown_name_error("node or host", name)),
                }
            }
            ObjectName::Service(..) => {
                self.service_addresses(name, "service", "has no cluster IP", cluster_ips)?
            }
            ObjectName::LoadBalancer(..) => self.service_addresses(
                name,
                "service",
                "has no load balancer address in `status.loadBalancer.ingress`",
                Service::ingress_ips,
            )?,
            ObjectName::External(..) => {
                self.service_addresses(name, "service", "has no `spec.externalIPs`", external_ips)?
            }
        };
        Ok(addresses)
    }

    fn service_addresses(
        &self,
        name: &ObjectName,
        kind: &str,
        error: &str,
        addresses: fn(&Service) -> Vec<IpAddr>,
    ) -> Result<Vec<IpAddr>, NameError> {
        let service = self
            .service(name)
            .ok_or_else(|| self.unknown_name_error(kind, name))?;
        let found = addresses(service);
        if found.is_empty() {
            let help = matches!(name, ObjectName::LoadBalancer(..)).then(|| {
                "add `status: {loadBalancer: {ingress: [{ip: 192.0.2.10}]}}` to the service, and a \
                 balancer to the lab's `loadBalancers`"
                    .to_owned()
            });
            return Err(NameError {
                message: format!("service {} {error}", service.full_name()),
                help,
            });
        }
        Ok(found)
    }

    /// Returns the service of a service, load balancer or external name; `None` for other names.
    #[must_use]
    pub fn service(&self, name: &ObjectName) -> Option<&Service> {
        let (ObjectName::Service(namespace, name)
        | ObjectName::LoadBalancer(namespace, name)
        | ObjectName::External(namespace, name)) = name
        else {
            return None;
        };
        self.services
            .iter()
            .find(|each| each.name == *name && each.namespace == *namespace)
    }

    /// Returns the network namespace from which the packets of a probe source start.
    ///
    /// # Errors
    ///
    /// Fails if no object has the name, or if it is not a pod, node or host.
    pub fn source_namespace(&self, text: &str) -> Result<String, NameError> {
        let reference = Reference::parse(text)?;
        match &reference.name {
            _ if reference.port.is_some() => Err(NameError::new(format!(
                "`{text}`: the source of a probe has no port"
            ))),
            ObjectName::Pod(namespace, pod) => self
                .pods
                .iter()
                .find(|each| each.namespace == *namespace && each.name == *pod)
                .map(|pod| self.netns(pod))
                .ok_or_else(|| self.unknown_name_error("pod", &reference.name)),
            ObjectName::Machine(machine)
                if self.nodes.iter().any(|node| node.name == *machine)
                    || self.hosts.iter().any(|host| host.name == *machine) =>
            {
                Ok(machine.clone())
            }
            ObjectName::Machine(_) => {
                Err(self.unknown_name_error("pod, node or host", &reference.name))
            }
            _ => Err(NameError::new(format!(
                "`{text}` cannot be a source; the source of a probe is a pod, a node or a host"
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
        let service = |kind: &str, addresses: fn(&Service) -> Vec<IpAddr>| {
            self.services
                .iter()
                .find(|each| addresses(each).contains(&address))
                .map(|each| format!("{kind}/{}", each.full_name()))
        };
        pod.map(super::Pod::reference)
            .or_else(|| node.map(|node| node.name.clone()))
            .or_else(|| host.map(|host| host.name.clone()))
            .or_else(|| service("service", cluster_ips))
            .or_else(|| service("lb", Service::ingress_ips))
            .or_else(|| service("external", external_ips))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(String, Option<String>), String> {
        Reference::parse(text)
            .map(|reference| (reference.name.to_string(), reference.port))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn reference_with_and_without_port_parses() {
        let parsed = |name: &str, port: &str| Ok((name.to_owned(), Some(port.to_owned())));
        assert_eq!(parse("pod/default/web:80"), parsed("pod/default/web", "80"));
        assert_eq!(parse("lb/a/b:https"), parsed("lb/a/b", "https"));
        assert_eq!(parse("node/n1:30443"), parsed("n1", "30443"));
        assert_eq!(parse("10.0.0.1:443"), parsed("10.0.0.1", "443"));
        assert_eq!(parse("[fd00::1]:443"), parsed("fd00::1", "443"));
        assert_eq!(parse("fd00::1"), Ok(("fd00::1".to_owned(), None)));
        assert_eq!(parse("laptop"), Ok(("laptop".to_owned(), None)));
    }

    #[test]
    fn reference_invalid_name_returns_error() {
        for bad in ["", ":80", "pod/web", "web:", "a/b/c", "pod/a/b/c"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(
            parse("pod/web:80"),
            Err("`pod/web` has no namespace".to_owned())
        );
    }
}
