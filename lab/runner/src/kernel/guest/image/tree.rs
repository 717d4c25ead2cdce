//! Selects the modules that labs can need from a kernel's module directory, in an order in which
//! they can be loaded.
//!
//! A package contains no `modules.dep`: `depmod` writes this file when a kernel is installed, and
//! this kernel is never installed. Each module contains the data that `depmod` reads.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::modinfo;
use crate::kernel::error::guest_files::TreeError;

/// Full names of the modules that a guest itself needs, that labs are built from, and that commands
/// of nodes request. Modules that add an interface to each namespace (`ip_gre`, `sit`) are absent.
const NEEDED: [&str; 57] = [
    "crc32c_generic",
    "virtio_pci",
    "virtio_console",
    "unix",
    "af_packet",
    "ipv6",
    "veth",
    "bridge",
    "br_netfilter",
    "dummy",
    "vxlan",
    "ipip",
    "nfnetlink",
    "nfnetlink_log",
    "nfnetlink_queue",
    "nf_conntrack_netlink",
    "nf_log_syslog",
    "nf_tables",
    "ip_tables",
    "ip6_tables",
    "ip_set",
    "ip_vs",
    "nf_reject_ipv4",
    "nf_reject_ipv6",
    "nf_defrag_ipv4",
    "nf_defrag_ipv6",
    "8021q",
    "ipvlan",
    "macvlan",
    "vrf",
    "xfrm_user",
    "esp4",
    "sch_fq",
    "sch_fq_codel",
    "sch_htb",
    "sch_ingress",
    "sch_netem",
    "sch_prio",
    "sch_red",
    "sch_sfq",
    "sch_tbf",
    "cls_basic",
    "cls_bpf",
    "cls_flower",
    "cls_fw",
    "cls_matchall",
    "cls_u32",
    "act_bpf",
    "act_gact",
    "act_mirred",
    "act_nat",
    "act_pedit",
    "act_police",
    "act_skbedit",
    "act_vlan",
    "ifb",
    "geneve",
];

/// Prefixes of the names of modules that rules and sets request.
const NEEDED_PREFIXES: [&str; 9] = [
    "xt_",
    "ipt_",
    "ip6t_",
    "iptable_",
    "ip6table_",
    "ip_set_",
    "ip_vs_",
    "nft_",
    "nf_log_",
];

/// Modules that the rules of no lab use and that would add many dependencies: LEDs, audits,
/// application helpers of IPVS, offloading to hardware.
const EXCLUDED: [&str; 10] = [
    "xt_LED",
    "xt_AUDIT",
    "xt_SECMARK",
    "xt_CONNSECMARK",
    "ip_vs_ftp",
    "ip_vs_pe_sip",
    "nft_flow_offload",
    "nft_xfrm",
    "nft_osf",
    "nft_tunnel",
];

/// Module as a guest loads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Module {
    /// Name of the module, with `_` for `-`.
    pub name: String,
    /// File of the module, decompressed and without its signature.
    pub bytes: Vec<u8>,
    /// Names by which the kernel requests the module, including patterns.
    pub aliases: Vec<String>,
}

/// Returns the modules that a lab can need from the module directory of a kernel
/// (`/lib/modules/RELEASE`), each after the modules that it depends on. Built-in modules have no
/// file and are omitted.
pub(crate) fn needed_modules(directory: &Path) -> Result<Vec<Module>, TreeError> {
    let mut files = BTreeMap::new();
    collect(&directory.join("kernel"), &mut files).map_err(|source| TreeError::Directory {
        directory: directory.to_owned(),
        source,
    })?;
    let mut order = LoadOrder {
        files: &files,
        visited: HashSet::new(),
        sorted: Vec::new(),
    };
    // These come first, because others need some of them without declaring a dependency: libcrc32c
    // requests its algorithm from the kernel by name.
    for name in NEEDED
        .iter()
        .copied()
        .filter(|name| files.contains_key(*name))
    {
        order.add(name)?;
    }
    for name in files.keys().filter(|name| is_needed(name)) {
        order.add(name)?;
    }
    if order.sorted.is_empty() {
        return Err(TreeError::NoModules(directory.to_owned()));
    }
    Ok(order.sorted)
}

fn is_needed(name: &str) -> bool {
    NEEDED_PREFIXES
        .iter()
        .any(|family| name.starts_with(family))
        && !EXCLUDED.contains(&name)
}

/// Collects the files of all modules below a directory, by module name.
fn collect(directory: &Path, files: &mut BTreeMap<String, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if let Some(name) = modinfo::module_name(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

struct LoadOrder<'a> {
    files: &'a BTreeMap<String, PathBuf>,
    visited: HashSet<String>,
    sorted: Vec<Module>,
}

impl LoadOrder<'_> {
    /// Adds a module after all modules that it depends on. A circle of dependencies, which no
    /// kernel could load, ends at its first module.
    fn add(&mut self, name: &str) -> Result<(), TreeError> {
        // A module without a file is built in.
        let Some(file) = self.files.get(name) else {
            return Ok(());
        };
        if !self.visited.insert(name.to_owned()) {
            return Ok(());
        }
        let damaged = |source| TreeError::Module {
            file: file.clone(),
            source,
        };
        let bytes = modinfo::read_module(file).map_err(|error| damaged(error.into()))?;
        let info = modinfo::parse(&bytes).map_err(|error| damaged(error.into()))?;
        for dependency in &info.depends {
            self.add(dependency)?;
        }
        self.sorted.push(Module {
            name: name.to_owned(),
            bytes: modinfo::without_signature(&bytes).to_vec(),
            aliases: info.aliases,
        });
        Ok(())
    }
}

/// Returns the aliases of modules in the format of `modules.alias`.
pub(crate) fn alias_list(modules: &[Module]) -> String {
    let mut seen = HashSet::new();
    let mut text = String::new();
    for module in modules {
        seen.clear();
        for alias in &module.aliases {
            if seen.insert(alias) {
                text.push_str("alias ");
                text.push_str(alias);
                text.push(' ');
                text.push_str(&module.name);
                text.push('\n');
            }
        }
    }
    text
}
