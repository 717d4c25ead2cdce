//! Parses and renders the network state of a node in the formats of its programs.
//!
//! Input: the output of `iptables-save`, `ipset save`, `nft list ruleset`, `ipvsadm -Sn`, `ip`,
//! `bridge`, `tc`, `conntrack` and `sysctl`. Output: typed state, which renders itself in the format
//! that the program loads. Text that cannot be parsed gives a [`Problem`](text::problem::Problem)
//! with its position.

pub mod bridge;
pub mod conntrack;
mod family;
pub mod input;
pub mod interface_settings;
pub mod ipsec;
pub mod ipset;
pub mod iptables;
pub mod ipvs;
pub mod json;
pub mod link;
mod mac;
pub mod neighbour;
pub mod network;
pub mod nft;
mod protocol;
pub mod route;
pub mod sysctl;
pub mod text;
pub mod tool;
pub mod traffic_control;

pub use family::Family;
pub use mac::Mac;
pub use protocol::Protocol;
