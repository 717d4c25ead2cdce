//! Configures network namespaces: interfaces, routes, sysctls, IPVS and conntrack.

pub(crate) mod accounting;
pub(crate) mod carrier;
pub(crate) mod conntrack;
pub(crate) mod forwarding_sysctls;
pub(crate) mod ipvs;
pub(crate) mod ipvs_read;
pub(crate) mod namespace_netlink;
pub(crate) mod neighbours;
pub(crate) mod netlink_changes;
pub(crate) mod netns;
pub(crate) mod nfnetlink;
pub(crate) mod sysctl;
