//! Configures network namespaces: interfaces, routes, sysctls, IPVS and conntrack.

pub(crate) mod attach_point;
pub(crate) mod ipvs;
pub(crate) mod netfilter;
pub(crate) mod netlink;
pub(crate) mod netns;
pub(crate) mod ports;
pub(crate) mod sysctl;
