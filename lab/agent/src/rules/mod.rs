//! Loads the rules and sets of a namespace while a lab is built. The programs start when the
//! namespace exists. Some rules need its interfaces, and wait for them.

pub(crate) mod batches;
pub(crate) mod loader;
pub mod restore;
pub(crate) mod saved_rules;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::num::NonZero;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::net::netns::NetNs;
use crate::program;
use crate::program::child::Child;
use crate::rules::loader::{Loader, Loaders};
use svclab_model::plan::delta::TablesChange;
use svclab_model::plan::{EvidenceRequest, Namespace};
use svclab_model::protocol::Failure;
use svclab_model::tools::iptables_program;
use svclab_ruleset::input::Input;
use svclab_ruleset::nft::Ruleset;

/// Maximum number of programs that wait without input, and of namespaces that are loaded in
/// parallel on many processors. Each program uses memory, which is scarce in a guest.
pub(crate) const MAX_PARALLEL: usize = 16;

/// Program that loads nftables tables. It is not kept running, because it reads its input to the
/// end.
const NFT: &str = "nft";

/// Rules and sets to load into a namespace, with the programs that wait for them.
pub(crate) struct PendingLoad<'a> {
    ns: NetNs,
    namespace: &'a str,
    stays_running: bool,
    /// Program name, input and process, in loading order: rules refer to sets. `None` for a program
    /// that was not started yet.
    loads: Vec<(String, &'a str, Option<LoadProgram>)>,
}

impl PendingLoad<'_> {
    /// Returns the number of waiting programs.
    pub(crate) fn count_waiting(&self) -> usize {
        let programs = self.loads.iter();
        programs.filter(|(_, _, program)| program.is_some()).count()
    }
}

/// Program that waits for its input.
enum LoadProgram {
    /// Exits at the end of its input.
    SingleInput(Child),
    /// Stays running for more input.
    Persistent(Box<Loader>),
}

impl LoadProgram {
    fn start(
        ns: &NetNs,
        namespace: &str,
        program: &str,
        stays_running: bool,
    ) -> Result<Self, Failure> {
        if stays_running && program != NFT {
            let loader = Loader::start(ns, namespace, program)?;
            return Ok(Self::Persistent(Box::new(loader)));
        }
        start_single_input(ns, namespace, program).map(Self::SingleInput)
    }
}

/// Starts a program that exits at the end of its input.
fn start_single_input(ns: &NetNs, namespace: &str, program: &str) -> Result<Child, Failure> {
    let arguments: &[&str] = match program {
        "ipset" => &["restore"],
        NFT => &["-f", "-"],
        // Nothing needs flushing, and the input may come in batches.
        _ => &["--noflush"],
    };
    program::start(ns, namespace, program, arguments, program::PATH)
}

/// Starts a program for each non-empty input of the namespace, or defers the start of all with
/// `defers_start`. With `stays_running`, the programs will stay running for more input.
///
/// # Errors
///
/// When a program is missing or cannot be started.
pub(crate) fn prepare<'a>(
    ns: &NetNs,
    namespace: &'a Namespace,
    stays_running: bool,
    defers_start: bool,
) -> Result<PendingLoad<'a>, Failure> {
    let name = &namespace.name;
    let sets = ("ipset".to_owned(), namespace.ipset.text());
    let iptables_rules = namespace.iptables_rules();
    let rules = iptables_rules.flat_map(|rules| {
        let program = |ip| iptables_program(ip, rules.backend, "restore");
        [(program(4), rules.v4.text()), (program(6), rules.v6.text())]
    });
    let tables = (NFT.to_owned(), namespace.nft.text());
    let mut loads: Vec<(String, &str)> = [sets].into_iter().chain(rules).collect();
    let place = if namespace.nft_first { 1 } else { loads.len() };
    loads.insert(place, tables);
    let loads = loads
        .into_iter()
        .filter(|(_, input)| !input.is_empty())
        .map(|(program, input)| {
            let start = || LoadProgram::start(ns, name, &program, stays_running);
            let process = (!defers_start).then(start).transpose()?;
            Ok((program, input, process))
        })
        .collect::<Result<_, Failure>>()?;
    Ok(PendingLoad {
        ns: ns.clone(),
        namespace: name,
        stays_running,
        loads,
    })
}

/// Words with which nftables tables refer to interfaces that must exist: hooks and flow tables have
/// devices, and `nft` replaces the interfaces of some matches and sets by their indexes (nftables
/// v1.0.6, `src/meta.c`, `ifindex_type_parse`).
const INTERFACE_WORDS: [&str; 6] = ["device", "devices", "iif", "oif", "sdif", "iface_index"];

/// Target of iptables that refers to an interface that must exist (Linux v6.1,
/// `net/ipv4/netfilter/ipt_CLUSTERIP.c`, `clusterip_config_init`).
const INTERFACE_TARGET: &str = "CLUSTERIP";

/// Whether rules of the namespace are loaded only after its interfaces are up.
///
/// They may refer to interfaces that must exist. Rules of ip6tables whose counters are read must not
/// count the multicast reports that the kernel sends when an interface goes up (Linux v6.12,
/// `net/ipv6/mcast.c`, `ipv6_mc_up`).
pub(crate) fn wait_for_interfaces(namespace: &Namespace, evidence: &EvidenceRequest) -> bool {
    let text = namespace.nft.text();
    let ends_word =
        |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    let mut words = INTERFACE_WORDS.iter();
    let names_interface = words.any(|word| {
        let mut found = text.match_indices(word);
        found.any(|(at, word)| ends_word(&text[at + word.len()..]))
    });
    let is_counted = evidence.rules.contains(&namespace.name);
    let mut iptables = namespace.iptables_rules();
    names_interface
        || iptables.any(|rules| {
            rules.v4.text().contains(INTERFACE_TARGET) || (is_counted && !rules.v6.is_empty())
        })
}

/// Returns the number of namespaces that are loaded in parallel: enough to use all processors, but
/// few enough to leave this process, which creates interfaces meanwhile, its share.
fn parallel_loads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    MAX_PARALLEL.min(processors + 1)
}

/// Loads the rules and sets of namespaces as they arrive, those of several namespaces in parallel.
/// Returns the programs that wait for more input.
///
/// # Errors
///
/// When a program rejects a line. The failure contains the line and the program's message.
pub(crate) async fn load_all(
    mut pending: UnboundedReceiver<PendingLoad<'_>>,
) -> Result<Loaders, Failure> {
    let pending = stream::poll_fn(|context| pending.poll_recv(context));
    let loaders: Vec<Loaders> = pending
        .map(load)
        .buffered(parallel_loads())
        .try_collect()
        .await?;
    Ok(loaders.into_iter().flatten().collect())
}

/// Loads the rules and sets of a namespace.
async fn load(pending: PendingLoad<'_>) -> Result<Loaders, Failure> {
    let mut loaders = Loaders::new();
    for (program, input, process) in pending.loads {
        let process = match process {
            Some(started) => started,
            None => LoadProgram::start(
                &pending.ns,
                pending.namespace,
                &program,
                pending.stays_running,
            )?,
        };
        match process {
            LoadProgram::SingleInput(child) => {
                let run = SplitRun {
                    ns: &pending.ns,
                    namespace: pending.namespace,
                    program: &program,
                };
                run.run(input, Some(child)).await?;
            }
            LoadProgram::Persistent(mut loader) => {
                loader.load(&pending.ns, input).await?;
                loaders.insert((pending.namespace.to_owned(), program), *loader);
            }
        }
    }
    Ok(loaders)
}

/// Runs of a program that exits at the end of its input, one for each part of an input.
struct SplitRun<'r> {
    ns: &'r NetNs,
    namespace: &'r str,
    program: &'r str,
}

impl SplitRun<'_> {
    /// Writes the input in as many parts as necessary. The first part goes to `waiting`, which is
    /// already running.
    async fn run(&self, input: &str, mut waiting: Option<Child>) -> Result<(), Failure> {
        let Self {
            ns,
            namespace,
            program,
        } = *self;
        let mut parts = VecDeque::from(batches::split_for_program(program, input));
        while let Some(part) = parts.pop_front() {
            let child = match waiting.take() {
                Some(child) => child,
                None => start_single_input(ns, namespace, program)?,
            };
            if let Err(failure) = run_to_end(child, namespace, program, &part.text).await {
                let rest = part.divide(program, &failure);
                let rest = rest.ok_or_else(|| part.locate(failure))?;
                rest.into_iter()
                    .rev()
                    .for_each(|part| parts.push_front(part));
            }
        }
        Ok(())
    }
}

/// Writes one part of the input to a program that exits at its end, and waits for the exit.
async fn run_to_end(
    child: Child,
    namespace: &str,
    program: &str,
    input: &str,
) -> Result<(), Failure> {
    let finished = program::finish(child, namespace, program, input, program::MAX_OUTPUT_BYTES)
        .await?
        .map_err(|_| program::printed_too_much(namespace, program))?;
    if finished.success {
        return Ok(());
    }
    let message = finished.stderr.trim();
    Err(program::input_rejected(
        namespace, program, message, input, 0,
    ))
}

/// Changes nftables tables.
///
/// # Errors
///
/// When `nft` is missing or rejects a line.
pub(crate) async fn change_tables(
    ns: &NetNs,
    namespace: &str,
    change: &TablesChange,
) -> Result<(), Failure> {
    let run = SplitRun {
        ns,
        namespace,
        program: NFT,
    };
    run.run(&change.commands(), None).await
}

/// Flushes the nftables sets that rules fill, which contain the client affinity.
///
/// # Errors
///
/// When `nft` is missing or rejects a line.
pub(crate) async fn flush_affinity(
    ns: &NetNs,
    namespace: &str,
    tables: &Input<Ruleset>,
) -> Result<(), Failure> {
    let Ok(ruleset) = tables.state() else {
        return Ok(());
    };
    let mut input = String::new();
    for table in &ruleset.tables {
        let dynamic_sets = table
            .sets
            .iter()
            .filter(|set| set.flags.iter().any(|flag| flag == "dynamic"));
        for set in dynamic_sets {
            let _ = writeln!(
                input,
                "flush set {} {} {}",
                table.family, table.name, set.name
            );
        }
    }
    if input.is_empty() {
        return Ok(());
    }
    run_to_end(
        start_single_input(ns, namespace, NFT)?,
        namespace,
        NFT,
        &input,
    )
    .await
}

/// Returns the tables in the input of a restore program.
pub(crate) fn table_names(input: &str) -> impl Iterator<Item = &str> {
    input
        .lines()
        .filter_map(|line| line.strip_prefix('*'))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::plan::Iptables;

    #[test]
    fn nft_tables_that_refer_to_interfaces_wait_for_them() {
        let waits = |rule: &str| {
            let namespace = Namespace {
                nft: Input::from_text(format!("table ip t {{\n chain c {{\n  {rule}\n }}\n}}\n")),
                ..Namespace::default()
            };
            wait_for_interfaces(&namespace, &EvidenceRequest::default())
        };
        assert!(waits("iif \"lo\" accept"));
        assert!(waits("meta oif eth0 drop"));
        assert!(waits(
            "type filter hook ingress device \"eth0\" priority 0; policy accept;"
        ));
        assert!(!waits("iifname \"eth0\" accept"));
        assert!(!waits("oifname vmap { \"eth0\" : accept }"));
    }

    #[test]
    fn iptables_rules_with_interfaces_or_ipv6_counters_wait() {
        let waits = |v4: &str, v6: &str, counted: &[&str]| {
            let input = |rules: &str| match rules {
                "" => Input::default(),
                rules => Input::from_text(format!("*filter\n{rules}\nCOMMIT\n")),
            };
            let namespace = Namespace {
                name: "node-1".to_owned(),
                iptables: Some(Iptables {
                    v4: input(v4),
                    v6: input(v6),
                    ..Iptables::default()
                }),
                ..Namespace::default()
            };
            let evidence = EvidenceRequest {
                rules: counted.iter().map(|&name| name.to_owned()).collect(),
                ..EvidenceRequest::default()
            };
            wait_for_interfaces(&namespace, &evidence)
        };
        let drop = "-A INPUT -j DROP";
        assert!(!waits(drop, drop, &["node-2"]));
        assert!(!waits(drop, "", &["node-1"]));
        assert!(waits(drop, drop, &["node-1"]));
        let cluster_ip = "-A INPUT -d 192.0.2.1/32 -i eth0 -j CLUSTERIP --new --hashmode sourceip";
        assert!(waits(cluster_ip, "", &[]));
    }
}
