//! Determines which of the modules that plans need a running kernel has, from the lists of the
//! machine. Performs no I/O.

use std::collections::{HashMap, HashSet};

/// Contents of the files in which a machine lists the modules of its kernel. `None` for a missing
/// file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModuleLists {
    /// Release of the kernel (`uname -r`).
    pub release: String,
    /// `/proc/modules`: the loaded modules. A kernel without module support has no such file.
    pub loaded: Option<String>,
    /// Names in `/sys/module`: loaded modules, and built-in modules with parameters. Also contains
    /// modules that are visible in `/proc` only.
    pub in_sysfs: Vec<String>,
    /// `modules.dep` of the running kernel.
    pub dep: Option<String>,
    /// `modules.alias` of the running kernel.
    pub alias: Option<String>,
    /// `modules.builtin` of the running kernel.
    pub builtin: Option<String>,
    /// `modules.builtin.modinfo` of the running kernel (Linux 5.2 and later).
    pub builtin_info: Option<String>,
    /// Whether `/proc/sys/kernel/modules_disabled` is 1: no module can be loaded until the next
    /// boot.
    pub is_loading_disabled: bool,
}

/// State of a module in a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModuleState {
    /// The kernel has the module. Also the result for a kernel that cannot load modules and does
    /// not show that it lacks the module: a request then has no effect.
    Present,
    /// The kernel would have to load these modules.
    Loadable(Vec<String>),
    /// The kernel has no module of that name.
    Absent,
}

/// Loaded, built-in and loadable modules of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modules {
    /// Whether the kernel supports modules.
    can_load: bool,
    is_loading_disabled: bool,
    release: (u32, u32),
    /// Loaded and built-in modules.
    present: HashSet<String>,
    /// Loadable and built-in modules. `None` if the machine does not show its lists.
    known: Option<HashSet<String>>,
    aliases: HashMap<String, Vec<String>>,
}

/// Modules that later kernels merged into another module, with the first release that did.
const MERGED: [(&str, (u32, u32)); 1] = [("nft_counter", (5, 18))];

/// Modules that `/sys/module` lists whenever the kernel has them, because they have parameters. A
/// kernel without module support that does not list such a module lacks it.
const ALWAYS_LISTED: [&str; 2] = ["ip_vs", "dummy"];

/// Names by which kernels request modules and from which no rule derives the module. For machines
/// that do not show their `modules.alias` (a container without `/lib/modules`). Taken from Debian's
/// 6.12; see `tests/recorded/modules`.
const ALIASES: [(&str, &str); 30] = [
    // In 6.1, the ICMP matches are still part of the tables.
    ("ipt_icmp", "xt_tcpudp"),
    ("ip6t_icmp6", "xt_tcpudp"),
    ("ipt_tcp", "xt_tcpudp"),
    ("ip6t_tcp", "xt_tcpudp"),
    ("ipt_udp", "xt_tcpudp"),
    ("ip6t_udp", "xt_tcpudp"),
    ("ipt_DNAT", "xt_nat"),
    ("ip6t_DNAT", "xt_nat"),
    ("ipt_SNAT", "xt_nat"),
    ("ip6t_SNAT", "xt_nat"),
    ("ipt_MARK", "xt_mark"),
    ("ip6t_MARK", "xt_mark"),
    ("ipt_CONNMARK", "xt_connmark"),
    ("ip6t_CONNMARK", "xt_connmark"),
    ("ipt_SET", "xt_set"),
    ("ip6t_SET", "xt_set"),
    ("ipt_NOTRACK", "xt_CT"),
    ("ip6t_NOTRACK", "xt_CT"),
    ("ipt_TOS", "xt_DSCP"),
    ("ip6t_TOS", "xt_DSCP"),
    ("ipt_tos", "xt_dscp"),
    ("ip6t_tos", "xt_dscp"),
    ("ipt_TTL", "xt_HL"),
    ("ipt_ttl", "xt_hl"),
    ("ip6t_dst", "ip6t_hbh"),
    ("ip6t_DNPT", "ip6t_NPT"),
    ("ip6t_SNPT", "ip6t_NPT"),
    ("nft-expr-match", "nft_compat"),
    ("nft-expr-target", "nft_compat"),
    ("nft-expr-notrack", "nft_ct"),
];

/// Extensions that exist for one family only: `ipt_REJECT` is a module, while `ipt_comment` is an
/// alias of `xt_comment`.
const SINGLE_FAMILY: [&str; 15] = [
    "ipt_REJECT",
    "ipt_rpfilter",
    "ipt_ah",
    "ipt_ECN",
    "ipt_SYNPROXY",
    "ip6t_REJECT",
    "ip6t_rpfilter",
    "ip6t_ah",
    "ip6t_SYNPROXY",
    "ip6t_eui64",
    "ip6t_frag",
    "ip6t_hbh",
    "ip6t_ipv6header",
    "ip6t_mh",
    "ip6t_rt",
];

impl Modules {
    /// Parses the lists of a machine.
    #[must_use]
    pub fn new(lists: &ModuleLists) -> Self {
        let mut present: HashSet<String> =
            lists.in_sysfs.iter().map(|name| normalize(name)).collect();
        present.extend(first_words(lists.loaded.as_deref()).map(normalize));
        let built_in: HashSet<String> = lists
            .builtin
            .iter()
            .flat_map(|text| text.lines().filter_map(module_of))
            .collect();
        let loadable = lists
            .dep
            .iter()
            .flat_map(|text| text.lines().filter_map(|line| line.split(':').next()))
            .filter_map(module_of);
        let known = (lists.dep.is_some() && lists.builtin.is_some())
            .then(|| loadable.chain(built_in.iter().cloned()).collect());
        present.extend(built_in);
        let mut aliases: HashMap<String, Vec<String>> = HashMap::new();
        let mut alias = |alias: &str, module: &str| {
            aliases
                .entry(normalize(alias))
                .or_default()
                .push(normalize(module));
        };
        for line in lists.alias.iter().flat_map(|text| text.lines()) {
            let mut words = line.split_whitespace();
            if let (Some("alias"), Some(name), Some(module)) =
                (words.next(), words.next(), words.next())
            {
                alias(name, module);
            }
        }
        // Each entry is `MODULE.alias=NAME`, followed by a zero byte.
        for entry in lists.builtin_info.iter().flat_map(|text| text.split('\0')) {
            if let Some((module, name)) = entry.split_once(".alias=") {
                alias(name, module);
            }
        }
        Self {
            can_load: lists.loaded.is_some(),
            is_loading_disabled: lists.is_loading_disabled,
            release: parse_release(&lists.release),
            present,
            known,
            aliases,
        }
    }

    /// Whether the machine shows which modules its kernel has. Without these lists, a built-in
    /// module is visible only if it has parameters.
    #[must_use]
    pub const fn shows_lists(&self) -> bool {
        self.known.is_some()
    }

    /// Whether this kernel can load modules. False if module loading is disabled.
    #[must_use]
    pub const fn can_load(&self) -> bool {
        self.can_load && !self.is_loading_disabled
    }

    /// Whether a module is loaded or built in.
    #[must_use]
    pub fn is_present(&self, module: &str) -> bool {
        self.present.contains(&normalize(module))
    }

    /// Returns the state of the module that the kernel would request by this name.
    #[must_use]
    pub fn state(&self, name: &str) -> ModuleState {
        if !self.can_load {
            let shows_modules = !self.present.is_empty();
            return if shows_modules && ALWAYS_LISTED.contains(&name) && !self.is_present(name) {
                ModuleState::Absent
            } else {
                ModuleState::Present
            };
        }
        let modules = self.modules_for(name);
        if modules.is_empty() {
            return if self.is_merged(name) {
                ModuleState::Present
            } else {
                ModuleState::Absent
            };
        }
        let missing: Vec<String> = modules
            .into_iter()
            .filter(|module| !self.present.contains(module))
            .collect();
        match (missing.is_empty(), self.is_loading_disabled) {
            (true, _) => ModuleState::Present,
            (false, true) => ModuleState::Absent,
            (false, false) => ModuleState::Loadable(missing),
        }
    }

    /// Returns the modules that the kernel would load for a name.
    fn modules_for(&self, name: &str) -> Vec<String> {
        let plain_name = normalize(name);
        let Some(known) = &self.known else {
            if self.is_merged(name) {
                return Vec::new();
            }
            return vec![self.conventional_module(name)];
        };
        if known.contains(&plain_name) || self.present.contains(&plain_name) {
            return vec![plain_name];
        }
        if let Some(modules) = self.aliases.get(&plain_name) {
            return modules.clone();
        }
        // Kernels before 5.2 do not list the aliases of built-in modules.
        let custom = self.conventional_module(name);
        if known.contains(&custom) {
            vec![custom]
        } else {
            Vec::new()
        }
    }

    /// Returns the module that provides a name in most kernels.
    fn conventional_module(&self, name: &str) -> String {
        let plain_name = normalize(name);
        if self.present.contains(&plain_name) || SINGLE_FAMILY.contains(&name) {
            return plain_name;
        }
        if let Some((_, module)) = ALIASES.iter().find(|(alias, _)| *alias == name) {
            return normalize(module);
        }
        if let Some(kind) = name.strip_prefix("ip_set_") {
            return format!("ip_set_{}", kind.replace(':', "_").replace(',', ""));
        }
        if name.starts_with("nft-chain-") {
            return "nft_chain_nat".to_owned();
        }
        // `nft-expr-2-fib` is for one family, and `nft-expr-ct` for all.
        if let Some(expression) = name.strip_prefix("nft-expr-") {
            return match expression.split_once('-') {
                Some(("2", of)) => format!("nft_{of}_ipv4"),
                Some(("10", of)) => format!("nft_{of}_ipv6"),
                _ => format!("nft_{expression}"),
            };
        }
        if name.starts_with("nf-logger-") {
            return "nf_log_syslog".to_owned();
        }
        match name.split_once("t_") {
            Some(("ip" | "ip6", extension)) => format!("xt_{extension}"),
            _ => plain_name,
        }
    }

    fn is_merged(&self, name: &str) -> bool {
        MERGED
            .iter()
            .any(|(module, since)| *module == name && self.release >= *since)
    }
}

/// Normalizes a name as the kernel does when it compares names: `-` equals `_`.
fn normalize(name: &str) -> String {
    name.replace('-', "_")
}

/// Returns the module of a file: `kernel/net/bridge/bridge.ko.xz`.
fn module_of(path: &str) -> Option<String> {
    let file = path.trim().rsplit('/').next()?;
    let name = file.split_once(".ko").map_or(file, |(name, _)| name);
    (!name.is_empty()).then(|| normalize(name))
}

fn first_words(text: Option<&str>) -> impl Iterator<Item = &str> {
    text.unwrap_or_default()
        .lines()
        .filter_map(|line| line.split_whitespace().next())
}

/// Returns the major and minor number of `6.1.0-50-cloud-amd64`; 0 for a number that is missing.
fn parse_release(text: &str) -> (u32, u32) {
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit());
    let mut next = || {
        numbers
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap_or(0)
    };
    (next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> ModuleLists {
        ModuleLists {
            release: "6.1.0-50-cloud-amd64".to_owned(),
            loaded: Some("nf_tables 311296 2 nft_compat, Live 0x0\n".to_owned()),
            in_sysfs: vec!["ipv6".to_owned()],
            dep: Some(
                "kernel/net/netfilter/xt_comment.ko.xz: kernel/net/netfilter/x_tables.ko.xz\nkernel/net/netfilter/nf_tables.ko:\nkernel/net/a/snd-dummy.ko.zst:\n"
                    .to_owned(),
            ),
            alias: Some("# list\nalias ipt_comment xt_comment\nalias nft-chain-2-nat nft_chain_nat\n".to_owned()),
            builtin: Some("kernel/drivers/net/veth.ko\n".to_owned()),
            builtin_info: Some("veth.alias=rtnl-link-veth\0veth.license=GPL\0".to_owned()),
            is_loading_disabled: false,
        }
    }

    #[test]
    fn state_loaded_or_built_in_is_present() {
        let modules = Modules::new(&machine());
        for name in ["nf_tables", "nf-tables", "ipv6", "veth", "rtnl-link-veth"] {
            assert_eq!(modules.state(name), ModuleState::Present, "{name}");
        }
        let loadable = |name: &str| ModuleState::Loadable(vec![name.to_owned()]);
        assert_eq!(modules.state("ipt_comment"), loadable("xt_comment"));
        assert_eq!(modules.state("snd_dummy"), loadable("snd_dummy"));
        assert_eq!(modules.state("ipt_recent"), ModuleState::Absent);
    }

    #[test]
    fn state_kernel_without_modules_is_present() {
        let modules = Modules::new(&ModuleLists {
            loaded: None,
            ..machine()
        });
        assert_eq!(modules.state("ipt_recent"), ModuleState::Present);
        assert!(!modules.can_load());
        // The kernel would list this module if it had it.
        assert_eq!(modules.state("ip_vs"), ModuleState::Absent);
        assert_eq!(modules.state("ip_vs_rr"), ModuleState::Present);
    }

    #[test]
    fn state_disabled_loading_is_absent() {
        let modules = Modules::new(&ModuleLists {
            is_loading_disabled: true,
            ..machine()
        });
        assert_eq!(modules.state("ipt_comment"), ModuleState::Absent);
        assert_eq!(modules.state("veth"), ModuleState::Present);
    }

    #[test]
    fn state_merged_module_is_present_in_later_kernels() {
        let state_of = |release: &str, dep: Option<&str>| {
            Modules::new(&ModuleLists {
                release: release.to_owned(),
                dep: dep.map(str::to_owned),
                ..machine()
            })
            .state("nft_counter")
        };
        let loadable = ModuleState::Loadable(vec!["nft_counter".to_owned()]);
        let listed = "kernel/net/netfilter/nft_counter.ko:\n";
        assert_eq!(state_of("5.15.0-100-generic", Some(listed)), loadable);
        assert_eq!(state_of("5.15.0-100-generic", None), loadable);
        assert_eq!(state_of("6.1.0", Some("")), ModuleState::Present);
        assert_eq!(state_of("6.1.0", None), ModuleState::Present);
    }

    #[test]
    fn release_text_is_parsed_to_numbers() {
        assert_eq!(parse_release("6.1.0-50-cloud-amd64"), (6, 1));
        assert_eq!(parse_release("5.15"), (5, 15));
        assert_eq!(parse_release("odd"), (0, 0));
    }
}
