//! The state of a node's network as its tools print and load it.
//!
//! Input: text, as `iptables-save`, `ipset save`, `nft list ruleset`, `ipvsadm -Sn`, `ip`
//! and `sysctl` print it. Output: typed state, which prints itself in the form that the
//! tool loads. What cannot be parsed is a [`Problem`](text::problem::Problem) with its
//! place in the text.

pub mod ipset;
pub mod iptables;
pub mod ipvs;
pub mod link;
pub mod nft;
pub mod route;
pub mod sysctl;
pub mod text;
pub mod tool;
