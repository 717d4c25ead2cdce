//! Requests to netfilter over netlink: conntrack entries and nfacct objects.

pub(crate) mod accounting;
pub(crate) mod attributes;
pub(crate) mod conntrack;
pub(crate) mod conntrack_entries;
pub(crate) mod nfnetlink;
