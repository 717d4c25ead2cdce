//! Reads `missing.txt`, in which `scripts/collect-node` lists the state that it could not read.

use crate::archive::{Skipped, SkippedFile};
use crate::recognise;
use svclab_ruleset::tool::Format;

/// Part of the reason if the node has no such state.
const WITHOUT_STATE: &str = "loaded in this kernel";

/// Part of the reason if the program found state, or could not say whether there is any.
const FAILED: &str = "exited with status";

/// Returns the state that was not read, named by the files that it would be in.
pub(super) fn missing_state(path: &str, text: &str) -> Vec<SkippedFile> {
    let directory = path.strip_suffix(recognise::MISSING_FILE);
    let directory = directory.unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    let known = lines.filter_map(|(file, reason)| {
        let format = Format::from_file_name(file)?;
        // The rules of kube-proxy are in the dump.
        let is_proxy = matches!(format, Format::ProxyFlags | Format::ProxyConfiguration);
        let is_absent = reason.contains(WITHOUT_STATE);
        let skipped = if is_absent || is_proxy {
            return None;
        } else if may_affect_packets(format, reason) {
            Skipped {
                same_as: same_state(format),
                ..Skipped::with_effect(reason, recognise::LACK)
            }
        } else {
            Skipped::without_effect(reason)
        };
        Some(SkippedFile {
            path: format!("{directory}{file}"),
            skipped,
        })
    });
    known.collect()
}

/// Returns the formats whose files show the same state. `/proc/net/ip_vs` shows the virtual servers
/// of a node without `ipvsadm`.
const fn same_state(format: Format) -> &'static [Format] {
    match format {
        Format::VirtualServers => &[Format::VirtualServers],
        _ => &[],
    }
}

/// Whether a verdict depends on state of this format. Verdicts do not depend on the state that few
/// dumps contain; each names what it does not look at.
fn may_affect_packets(format: Format, reason: &str) -> bool {
    match format {
        Format::Rules(..)
        | Format::Sets
        | Format::Nft
        | Format::VirtualServers
        | Format::Links
        | Format::Routes(_)
        | Format::RoutingRules(_)
        | Format::Sysctls => true,
        Format::LinkDetails
        | Format::BridgePorts
        | Format::Forwarding
        | Format::Neighbours
        | Format::Qdiscs
        | Format::TrafficClasses
        | Format::TrafficFilters => reason.contains(FAILED),
        Format::IpsecPolicies
        | Format::Connections
        | Format::ProxyFlags
        | Format::ProxyConfiguration => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_state_has_effect_only_if_node_may_have_it() {
        let text = "\
iptables-legacy-save: legacy tables are not loaded in this kernel
nft: nft is not installed
tc-filter: `tc filter show dev eth0` exited with status 1: Cannot find device
bridge-fdb: bridge is not installed
conntrack-L: only the first 1000 ipv4 connections are listed
kube-proxy-cmdline: no kube-proxy is in /proc
snmp: cannot read /proc/net/snmp
";
        let lines = missing_state("node-1/missing.txt", text)
            .into_iter()
            .map(|file| {
                let Skipped {
                    reason, affects, ..
                } = file.skipped;
                format!("{} | {reason} | {affects}", file.path)
            });
        let lines = lines.collect::<Vec<String>>().join("\n");
        insta::assert_snapshot!(lines, @"
        node-1/nft | nft is not installed | packets pass as if the node had none of it
        node-1/tc-filter | `tc filter show dev eth0` exited with status 1: Cannot find device | packets pass as if the node had none of it
        node-1/bridge-fdb | bridge is not installed | 
        node-1/conntrack-L | only the first 1000 ipv4 connections are listed | 
        ");
    }
}
