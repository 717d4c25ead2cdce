//! Decides whether a change replaces an earlier one.

use super::ProposedChange;

impl ProposedChange {
    /// Whether both changes set the same value, so that the second replaces the first.
    pub(in crate::why) fn replaces(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::ClusterPolicy { service, field } | Self::LocalPolicy { service, field },
                Self::ClusterPolicy {
                    service: of,
                    field: set,
                }
                | Self::LocalPolicy {
                    service: of,
                    field: set,
                },
            ) => (service, field) == (of, set),
            (
                Self::ServiceField { service, field },
                Self::ServiceField {
                    service: of,
                    field: set,
                },
            ) => service == of && field.is_same_as(set),
            (Self::FlannelNetwork { .. }, Self::FlannelNetwork { .. })
            | (Self::ClusterCidr { .. }, Self::ClusterCidr { .. })
            | (
                Self::MasqueradeAll | Self::MasqueradeFew,
                Self::MasqueradeAll | Self::MasqueradeFew,
            ) => true,
            (
                Self::UseOwnSource { balancer } | Self::KeepSource { balancer },
                Self::UseOwnSource { balancer: of } | Self::KeepSource { balancer: of },
            )
            | (
                Self::ForwardToNodePorts { balancer } | Self::ForwardToPods { balancer },
                Self::ForwardToNodePorts { balancer: of } | Self::ForwardToPods { balancer: of },
            ) => balancer == of,
            (
                Self::AddBackend { balancer, node } | Self::RemoveBackend { balancer, node },
                Self::AddBackend {
                    balancer: of,
                    node: on,
                }
                | Self::RemoveBackend {
                    balancer: of,
                    node: on,
                },
            ) => (balancer, node) == (of, on),
            (
                Self::SetSysctl {
                    namespaces, keys, ..
                },
                Self::SetSysctl {
                    namespaces: of,
                    keys: set,
                    ..
                },
            ) => (namespaces, keys) == (of, set),
            (
                Self::SetMtu {
                    namespace, link, ..
                },
                Self::SetMtu {
                    namespace: of,
                    link: on,
                    ..
                },
            ) => (namespace, link) == (of, on),
            _ => false,
        }
    }
}
