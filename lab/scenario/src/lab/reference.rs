//! References to documents of a lab: `Lab`, `Node/node-1`, `Service/default/nginx`.

use std::fmt;
use std::str::FromStr;

/// Kubernetes kinds that svclab models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// `v1`, cluster-scoped.
    Node,
    /// `v1`, namespaced.
    Pod,
    /// `v1`, namespaced.
    Service,
    /// `discovery.k8s.io/v1`, namespaced.
    EndpointSlice,
    /// `networking.k8s.io/v1`, cluster-scoped.
    ServiceCidr,
}

impl ObjectKind {
    /// All kinds that svclab models.
    pub const ALL: [Self; 5] = [
        Self::Node,
        Self::Pod,
        Self::Service,
        Self::EndpointSlice,
        Self::ServiceCidr,
    ];

    /// Returns the value of `kind`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::ServiceCidr => "ServiceCIDR",
        }
    }

    /// Returns the kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the API group, empty for the core group.
    #[must_use]
    pub const fn group(self) -> &'static str {
        match self {
            Self::EndpointSlice => "discovery.k8s.io",
            Self::ServiceCidr => "networking.k8s.io",
            Self::Node | Self::Pod | Self::Service => "",
        }
    }

    /// Returns the supported `apiVersion`.
    #[must_use]
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::EndpointSlice => "discovery.k8s.io/v1",
            Self::ServiceCidr => "networking.k8s.io/v1",
            Self::Node | Self::Pod | Self::Service => "v1",
        }
    }

    /// Whether objects of this kind are in a Kubernetes namespace.
    #[must_use]
    pub const fn is_namespaced(self) -> bool {
        !matches!(self, Self::Node | Self::ServiceCidr)
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Kinds whose pods svclab writes, in the API group `apps`.
pub(crate) const WORKLOAD_KINDS: [&str; 4] =
    ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"];

/// Reference to one document of a scenario.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DocumentRef {
    /// The lab document.
    Lab,
    /// A Kubernetes object.
    Object {
        /// Kind of the object.
        kind: ObjectKind,
        /// Kubernetes namespace; empty for cluster-scoped kinds.
        namespace: String,
        /// Name of the object.
        name: String,
    },
}

impl DocumentRef {
    /// Returns the reference to an object. `namespace` is ignored for cluster-scoped kinds.
    #[must_use]
    pub fn object(kind: ObjectKind, namespace: &str, name: &str) -> Self {
        Self::Object {
            kind,
            namespace: if kind.is_namespaced() {
                namespace.to_owned()
            } else {
                String::new()
            },
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for DocumentRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lab => f.write_str("Lab"),
            Self::Object {
                kind,
                namespace,
                name,
            } if kind.is_namespaced() => write!(f, "{kind}/{namespace}/{name}"),
            Self::Object { kind, name, .. } => write!(f, "{kind}/{name}"),
        }
    }
}

/// Error of parsing a reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// svclab does not model the kind.
    #[error(
        "svclab does not model objects of kind `{0}`; write `Lab` or a Node, Pod, Service, \
         EndpointSlice or ServiceCIDR"
    )]
    UnknownKind(String),
    /// svclab writes the pods of the workload before patches apply.
    #[error("a {0} cannot be changed; name one of its pods, such as `Pod/default/web-0`")]
    Workload(String),
    /// The parts do not fit the kind: a part is empty, a namespace is missing, or a cluster-scoped
    /// kind has one.
    #[error("`{text}` does not name a {kind}; write `{example}`")]
    InvalidFormat {
        /// Text of the reference.
        text: String,
        /// Name of the kind.
        kind: &'static str,
        /// Example of a valid reference.
        example: String,
    },
}

impl FromStr for DocumentRef {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('/');
        let kind_name = parts.next().unwrap_or_default();
        let rest: Vec<&str> = parts.collect();
        if kind_name == "Lab" {
            return match rest.as_slice() {
                [] => Ok(Self::Lab),
                _ => Err(ReferenceError::InvalidFormat {
                    text: text.to_owned(),
                    kind: "Lab",
                    example: "Lab".to_owned(),
                }),
            };
        }
        let kind = ObjectKind::from_name(kind_name).ok_or_else(|| {
            let name = kind_name.to_owned();
            if WORKLOAD_KINDS.contains(&kind_name) {
                ReferenceError::Workload(name)
            } else {
                ReferenceError::UnknownKind(name)
            }
        })?;
        if rest.iter().all(|part| !part.is_empty()) {
            match (kind.is_namespaced(), rest.as_slice()) {
                (true, [namespace, name]) => return Ok(Self::object(kind, namespace, name)),
                (false, [name]) => return Ok(Self::object(kind, "", name)),
                _ => {}
            }
        }
        let name = rest.last().filter(|n| !n.is_empty()).unwrap_or(&"NAME");
        Err(ReferenceError::InvalidFormat {
            text: text.to_owned(),
            kind: kind.name(),
            example: Self::object(kind, "default", name).to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_printed_parses_to_same_value() {
        for text in [
            "Lab",
            "Node/node-1",
            "Service/default/nginx",
            "EndpointSlice/a/b",
            "ServiceCIDR/kubernetes",
        ] {
            let reference: DocumentRef = text.parse().expect("a reference");
            assert_eq!(reference.to_string(), text);
        }
    }

    #[test]
    fn reference_error_names_valid_form() {
        let message = |text: &str| match text.parse::<DocumentRef>() {
            Ok(reference) => panic!("{reference} is valid"),
            Err(error) => error.to_string(),
        };
        assert_eq!(
            message("Service/nginx"),
            "`Service/nginx` does not name a Service; write `Service/default/nginx`"
        );
        assert_eq!(
            message("Node/default/node-1"),
            "`Node/default/node-1` does not name a Node; write `Node/node-1`"
        );
        assert_eq!(
            message("Pod//x"),
            "`Pod//x` does not name a Pod; write `Pod/default/x`"
        );
        assert!(
            message("Ingress/default/x")
                .starts_with("svclab does not model objects of kind `Ingress`")
        );
        assert_eq!(
            message("Deployment/default/x"),
            "a Deployment cannot be changed; name one of its pods, such as `Pod/default/web-0`"
        );
        assert!(message("Lab/x").ends_with("write `Lab`"));
    }
}
