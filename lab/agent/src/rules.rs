//! Loading the rules and sets of a namespace that is being built. Its programs
//! are started as soon as it is there and wait while its interfaces are made.

use std::fmt::Write as _;

use super::batches;
use super::child::Child;
use super::loader::{Loader, Loaders};
use super::netns::NetNs;
use super::program;
use svclab_model::plan::Namespace;
use svclab_model::plan::delta::TablesChange;
use svclab_model::protocol::Failure;
use svclab_model::tools::iptables_program;
use svclab_ruleset::nft;

/// How many programs wait at most before there is something for them, and how many
/// namespaces are loaded at once. Each program takes memory, and a guest has little.
pub const AT_ONCE: usize = 16;

/// What loads tables of nftables. It does not wait for more: other tables are another
/// lab.
const NFT: &str = "nft";

/// What is to be loaded in a namespace, by programs that wait for it.
pub struct Begun<'a> {
    ns: NetNs,
    namespace: &'a str,
    standing: bool,
    /// In this order: rules name sets. Programs that were not started yet are none.
    loads: Vec<(String, &'a str, Option<Program>)>,
}

impl Begun<'_> {
    /// How many programs wait.
    pub fn waiting(&self) -> usize {
        let programs = self.loads.iter();
        programs.filter(|(_, _, program)| program.is_some()).count()
    }
}

/// A program that waits for its input.
enum Program {
    /// It ends with its input.
    Once(Child),
    /// It stays for more.
    Stays(Box<Loader>),
}

impl Program {
    fn start(ns: &NetNs, namespace: &str, program: &str, standing: bool) -> Result<Self, Failure> {
        if standing && program != NFT {
            let loader = Loader::start(ns, namespace, program)?;
            return Ok(Self::Stays(Box::new(loader)));
        }
        once(ns, namespace, program).map(Self::Once)
    }
}

/// Starts a program that ends with its input.
fn once(ns: &NetNs, namespace: &str, program: &str) -> Result<Child, Failure> {
    let arguments: &[&str] = match program {
        "ipset" => &["restore"],
        NFT => &["-f", "-"],
        // There is nothing to flush, and it may come in batches.
        _ => &["--noflush"],
    };
    program::start(ns, namespace, program, arguments, program::PATH)
}

/// Starts a program for everything that the namespace has to load, and none for
/// what it has not; none at all yet if there are `enough`. In a lab that stands
/// they will wait for more.
///
/// # Errors
///
/// When a program is missing or cannot be started.
pub fn begin<'a>(
    ns: &NetNs,
    namespace: &'a Namespace,
    standing: bool,
    enough: bool,
) -> Result<Begun<'a>, Failure> {
    let name = &namespace.name;
    let sets = ("ipset".to_owned(), namespace.ipset.as_str());
    let both = namespace.iptables.iter().chain(&namespace.beside);
    let rules = both.flat_map(|rules| {
        let program = |ip| iptables_program(ip, rules.backend, "restore");
        [
            (program(4), rules.v4.as_str()),
            (program(6), rules.v6.as_str()),
        ]
    });
    let tables = (NFT.to_owned(), namespace.nft.as_str());
    let loads = [sets]
        .into_iter()
        .chain(rules)
        .chain([tables])
        .filter(|(_, input)| !input.is_empty())
        .map(|(program, input)| {
            let start = || Program::start(ns, name, &program, standing);
            let started = (!enough).then(start).transpose()?;
            Ok((program, input, started))
        })
        .collect::<Result<_, Failure>>()?;
    Ok(Begun {
        ns: ns.clone(),
        namespace: name,
        standing,
        loads,
    })
}

/// Loads it all. Returns the programs that wait for more.
///
/// # Errors
///
/// When a program refuses a line: the failure then carries that line and the
/// program's own message.
pub async fn finish(begun: Begun<'_>) -> Result<Loaders, Failure> {
    let mut loaders = Loaders::new();
    for (program, input, started) in begun.loads {
        let started = match started {
            Some(started) => started,
            None => Program::start(&begun.ns, begun.namespace, &program, begun.standing)?,
        };
        let parts = batches::for_program(&program, input);
        match started {
            Program::Once(child) => {
                let mut waiting = Some(child);
                for part in parts {
                    let child = match waiting.take() {
                        Some(child) => child,
                        None => once(&begun.ns, begun.namespace, &program)?,
                    };
                    feed(child, begun.namespace, &program, &part).await?;
                }
            }
            Program::Stays(mut loader) => {
                for part in parts {
                    loader.load(&part).await?;
                }
                loaders.insert((begun.namespace.to_owned(), program), *loader);
            }
        }
    }
    Ok(loaders)
}

/// Gives a program that ends with its input all of it.
async fn feed(child: Child, namespace: &str, program: &str, input: &str) -> Result<(), Failure> {
    let finished = program::finish(child, namespace, program, input, program::MOST)
        .await?
        .map_err(|_| program::printed_too_much(namespace, program))?;
    if finished.success {
        return Ok(());
    }
    let said = finished.stderr.trim();
    Err(program::refused(namespace, program, said, input, 0))
}

/// Changes tables of nftables. What goes goes with the first of what comes.
///
/// # Errors
///
/// When `nft` is missing or refuses a line.
pub async fn change_tables(
    ns: &NetNs,
    namespace: &str,
    change: &TablesChange,
) -> Result<(), Failure> {
    let mut input = String::new();
    for table in &change.go {
        let _ = writeln!(input, "delete table {table}");
    }
    for part in batches::for_program(NFT, &change.come) {
        input.push_str(&part);
        feed(once(ns, namespace, NFT)?, namespace, NFT, &input).await?;
        input.clear();
    }
    Ok(())
}

/// Empties the sets of nftables that rules fill: clients that stay with an endpoint.
///
/// # Errors
///
/// As [`change_tables`].
pub async fn forget_clients(ns: &NetNs, namespace: &str, tables: &str) -> Result<(), Failure> {
    let Ok(ruleset) = nft::parse(tables) else {
        return Ok(());
    };
    let mut input = String::new();
    for table in &ruleset.tables {
        let filled = table
            .sets
            .iter()
            .filter(|set| set.flags.iter().any(|flag| flag == "dynamic"));
        for set in filled {
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
    feed(once(ns, namespace, NFT)?, namespace, NFT, &input).await
}

/// The tables that a restore program's input fills.
pub fn tables(input: &str) -> impl Iterator<Item = &str> {
    input
        .lines()
        .filter_map(|line| line.strip_prefix('*'))
        .map(str::trim)
}
