//! What each component of a cluster would write on a node: kube-proxy, flannel,
//! calico, ip-masq-agent, docker. Pure functions from the cluster's objects to
//! the text that the real tools (`iptables-restore`, `ipset restore`) load.

pub mod calico;
pub mod chains;
pub mod docker;
pub mod flannel;
pub mod ip_masq_agent;
pub mod kube_proxy;
pub mod kubelet;
pub mod service;
pub mod version;
