//! Computes the rules that each component of a cluster writes on a node: kube-proxy, flannel,
//! calico, ip-masq-agent, kubelet and docker.
//!
//! The modules are pure functions. The input is the cluster's objects and the component's
//! configuration. The output is the text that the real tools (`iptables-restore`, `ipset restore`,
//! `nft`) load.

#![warn(unreachable_pub)]

pub mod calico;
pub mod docker;
pub mod flannel;
pub mod ip_masq_agent;
pub mod kube_proxy;
pub mod kubelet;
pub mod objects;
mod release;
