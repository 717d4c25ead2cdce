//! Requests to netfilter over netlink, for conntrack entries and nfacct objects, and over its files.

pub(crate) mod accounting;
pub(crate) mod attributes;
pub(crate) mod conntrack;
pub(crate) mod conntrack_entries;
pub(crate) mod nfnetlink;
pub(crate) mod recent;
