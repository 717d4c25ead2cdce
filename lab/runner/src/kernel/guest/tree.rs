//! The modules that a lab can need, out of a kernel's directory of modules, in
//! an order in which they can be loaded.
//!
//! A package holds no `modules.dep`: `depmod` writes that when a kernel is
//! installed, which this one never is. What `depmod` reads is in each module.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::modinfo::{self, ModuleError};

/// Modules by their whole names: what a guest itself stands on, and what labs
/// are made of.
const WANTED: [&str; 26] = [
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
];

/// Modules by how their names begin: what rules and sets ask for.
const FAMILIES: [&str; 9] = [
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

/// What no lab's rules hold and what would bring along half the kernel:
/// lights, audits, application helpers of IPVS, offloading to hardware.
const UNWANTED: [&str; 10] = [
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

/// One module as a guest loads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Its file, unpacked, without its signature.
    pub bytes: Vec<u8>,
    /// The names that it answers to.
    pub aliases: Vec<String>,
}

/// Why a kernel's modules cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The directory cannot be read.
    #[error("cannot read the modules in {}: {source}", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It holds no modules, or none that labs need.
    #[error("there is no module for labs in {}", .0.display())]
    Nothing(PathBuf),
    /// A module is damaged.
    #[error("{}: {source}", file.display())]
    Module {
        /// The module's file.
        file: PathBuf,
        /// What is wrong with it.
        source: ModuleError,
    },
}

/// The modules that a lab can need from the directory of one kernel's modules
/// (`/lib/modules/RELEASE`), each after those it depends on. What is built into
/// the kernel has no file and is left out.
///
/// # Errors
///
/// When the directory or one of the modules cannot be read, or there are none.
pub fn wanted(directory: &Path) -> Result<Vec<Module>, TreeError> {
    let mut files = BTreeMap::new();
    collect(&directory.join("kernel"), &mut files).map_err(|source| TreeError::Directory {
        directory: directory.to_owned(),
        source,
    })?;
    let mut order = Order {
        files: &files,
        begun: HashSet::new(),
        sorted: Vec::new(),
    };
    // First what others need without saying so: libcrc32c asks the kernel for
    // the algorithm by name.
    for name in WANTED
        .iter()
        .copied()
        .filter(|name| files.contains_key(*name))
    {
        order.add(name)?;
    }
    for name in files.keys().filter(|name| is_of_labs(name)) {
        order.add(name)?;
    }
    if order.sorted.is_empty() {
        return Err(TreeError::Nothing(directory.to_owned()));
    }
    Ok(order.sorted)
}

fn is_of_labs(name: &str) -> bool {
    FAMILIES.iter().any(|family| name.starts_with(family)) && !UNWANTED.contains(&name)
}

/// All modules' files below a directory, by name.
fn collect(directory: &Path, files: &mut BTreeMap<String, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if let Some(name) = modinfo::name(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

struct Order<'a> {
    files: &'a BTreeMap<String, PathBuf>,
    begun: HashSet<String>,
    sorted: Vec<Module>,
}

impl Order<'_> {
    /// Adds a module after all that it depends on. A circle, which no kernel
    /// could load, ends where it began.
    fn add(&mut self, name: &str) -> Result<(), TreeError> {
        // What has no file is built in.
        let Some(file) = self.files.get(name) else {
            return Ok(());
        };
        if !self.begun.insert(name.to_owned()) {
            return Ok(());
        }
        let damaged = |source| TreeError::Module {
            file: file.clone(),
            source,
        };
        let bytes = modinfo::read(file).map_err(|error| damaged(error.into()))?;
        let info = modinfo::parse(&bytes).map_err(|error| damaged(error.into()))?;
        for other in &info.depends {
            self.add(other)?;
        }
        self.sorted.push(Module {
            name: name.to_owned(),
            bytes: modinfo::unsigned(&bytes).to_vec(),
            aliases: info.aliases,
        });
        Ok(())
    }
}

/// The modules' aliases as `modules.alias` holds them.
#[must_use]
pub fn alias_list(modules: &[Module]) -> String {
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
