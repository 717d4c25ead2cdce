//! Lists the served resources with their API versions and paths.

use std::fmt;

use serde_json::Value;

/// Resource that the store keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// `Node` objects of v1.
    Nodes,
    /// `Service` objects of v1.
    Services,
    /// `EndpointSlice` objects of discovery.k8s.io/v1.
    EndpointSlices,
    /// `Endpoints` objects of v1. The store makes them from slices unless they are given.
    Endpoints,
    /// `ServiceCIDR` objects of networking.k8s.io/v1.
    ServiceCidrs,
}

/// Resource in one API version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionedResource {
    /// Requested resource.
    pub resource: Resource,
    /// `discovery.k8s.io/v1beta1`, or `v1` for the core group.
    pub api_version: &'static str,
}

/// Served collections: API version, plural name and resource.
const SERVED: [(&str, &str, Resource); 8] = [
    ("v1", "nodes", Resource::Nodes),
    ("v1", "services", Resource::Services),
    ("v1", "endpoints", Resource::Endpoints),
    (
        "discovery.k8s.io/v1",
        "endpointslices",
        Resource::EndpointSlices,
    ),
    (
        "discovery.k8s.io/v1beta1",
        "endpointslices",
        Resource::EndpointSlices,
    ),
    (
        "networking.k8s.io/v1",
        "servicecidrs",
        Resource::ServiceCidrs,
    ),
    (
        "networking.k8s.io/v1beta1",
        "servicecidrs",
        Resource::ServiceCidrs,
    ),
    (
        "networking.k8s.io/v1alpha1",
        "servicecidrs",
        Resource::ServiceCidrs,
    ),
];

/// Returns the plural names of all served resources, each once.
pub fn served_resources() -> impl Iterator<Item = &'static str> {
    let names = SERVED.iter().map(|(_, name, _)| *name).enumerate();
    names
        .filter(|(index, name)| {
            !SERVED[..*index]
                .iter()
                .any(|(_, earlier, _)| earlier == name)
        })
        .map(|(_, name)| name)
}

impl Resource {
    /// Returns the kind of an object: `EndpointSlice`.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Nodes => "Node",
            Self::Services => "Service",
            Self::EndpointSlices => "EndpointSlice",
            Self::Endpoints => "Endpoints",
            Self::ServiceCidrs => "ServiceCIDR",
        }
    }

    /// Whether the objects are in namespaces.
    #[must_use]
    pub const fn is_namespaced(self) -> bool {
        !matches!(self, Self::Nodes | Self::ServiceCidrs)
    }

    /// Returns the API version in which the store keeps the objects.
    #[must_use]
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::Nodes | Self::Services | Self::Endpoints => "v1",
            Self::EndpointSlices => "discovery.k8s.io/v1",
            Self::ServiceCidrs => "networking.k8s.io/v1",
        }
    }

    /// Returns the resource of an object, from its kind. `None` if the kind is not served.
    #[must_use]
    pub fn from_object(object: &Value) -> Option<Self> {
        let kind = object.get("kind")?.as_str()?;
        [
            Self::Nodes,
            Self::Services,
            Self::EndpointSlices,
            Self::Endpoints,
            Self::ServiceCidrs,
        ]
        .into_iter()
        .find(|resource| resource.kind() == kind)
    }
}

impl VersionedResource {
    /// Returns the resource with a plural name in an API version. `None` if it is not served.
    #[must_use]
    pub fn find(api_version: &str, plural: &str) -> Option<Self> {
        SERVED
            .iter()
            .find(|(version, name, _)| *version == api_version && *name == plural)
            .map(|(api_version, _, resource)| Self {
                resource: *resource,
                api_version,
            })
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn served_resources_lists_each_name_once() {
        let names: Vec<&str> = served_resources().collect();
        let expected = [
            "nodes",
            "services",
            "endpoints",
            "endpointslices",
            "servicecidrs",
        ];
        assert_eq!(names, expected);
    }
}
