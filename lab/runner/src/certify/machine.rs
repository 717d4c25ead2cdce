//! Reads the network state of this machine, and state that may depend on it. Never makes the kernel
//! load a module: a module that is not loaded has no state.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{MachineState, Section, SectionLines, lines};
use crate::kernel::host::lists;
use crate::kernel::{ModuleState, Modules};
use svclab_agent::PATH;

/// Reads all sections except the processes.
#[must_use]
pub fn read_state() -> MachineState {
    let modules = Modules::new(&lists::read_lists());
    let is_loaded = |module: &str| modules.state(module) == ModuleState::Present;
    let read_if_loaded = |module: &str, read: fn() -> SectionLines| {
        if is_loaded(module) {
            read()
        } else {
            Ok(Vec::new())
        }
    };
    MachineState::default()
        .with(Section::Links, links())
        .with(Section::Addresses, addresses())
        .with(
            Section::Routes,
            both_families("route show table all", lines::routes),
        )
        .with(Section::Rules, both_families("rule", lines::rules))
        .with(Section::Neighbours, neighbours())
        .with(Section::Nftables, read_if_loaded("nf_tables", nftables))
        .with(
            Section::IptablesNft,
            read_if_loaded("nf_tables", iptables_nft),
        )
        .with(Section::IptablesLegacy, iptables_legacy())
        .with(Section::Ipset, read_if_loaded("ip_set", ipset))
        .with(Section::Ipvs, read_file("/proc/net/ip_vs", lines::ipvs))
        .with(Section::Sysctls, Ok(sysctls()))
        .with(Section::Modules, read_file("/proc/modules", lines::modules))
        .with(
            Section::Mounts,
            read_file("/proc/self/mountinfo", lines::mounts),
        )
        .with(Section::Run, Ok(runtime_files()))
}

fn links() -> SectionLines {
    lines::links(&ip(&["-d", "link"])?)
}

fn addresses() -> SectionLines {
    lines::addresses(&ip(&["addr"])?)
}

fn neighbours() -> SectionLines {
    let mut entries = lines::neighbours(&ip(&["neigh", "show", "nud", "permanent"])?)?;
    entries.extend(lines::neighbours(&ip(&["neigh", "show", "proxy"])?)?);
    entries.sort();
    Ok(entries)
}

/// Reads a section from the output of `ip` for both families.
fn both_families(command: &str, read: fn(&str) -> Result<Vec<String>, String>) -> SectionLines {
    let words: Vec<&str> = command.split(' ').collect();
    let mut entries = Vec::new();
    for family in ["-4", "-6"] {
        let arguments = [&[family], words.as_slice()].concat();
        let found = read(&ip(&arguments)?)?;
        entries.extend(found.into_iter().map(|line| format!("{family} {line}")));
    }
    Ok(entries)
}

fn ip(arguments: &[&str]) -> Result<String, String> {
    run_program("ip", &[&["-j"], arguments].concat())
}

fn nftables() -> SectionLines {
    lines::nftables(&run_program("nft", &["-j", "-s", "list", "ruleset"])?)
}

fn iptables_nft() -> SectionLines {
    let mut entries = lines::iptables(&run_program("iptables-nft-save", &[])?);
    entries.extend(lines::iptables(&run_program("ip6tables-nft-save", &[])?));
    Ok(entries)
}

/// Reads only the tables that the kernel reports, because reading another table creates it.
fn iptables_legacy() -> SectionLines {
    let mut entries = Vec::new();
    for (family, program) in [
        ("ip", "iptables-legacy-save"),
        ("ip6", "ip6tables-legacy-save"),
    ] {
        let tables = read_file(&format!("/proc/net/{family}_tables_names"), |text| {
            text.lines().map(str::to_owned).collect()
        })?;
        if !tables.is_empty() {
            entries.extend(lines::iptables(&run_program(program, &[])?));
        }
    }
    Ok(entries)
}

fn ipset() -> SectionLines {
    run_program("ipset", &["save"]).map(|text| lines::ipset(&text))
}

/// Reads the lines of a file. A missing file has no lines.
fn read_file(path: &str, read: impl Fn(&str) -> Vec<String>) -> SectionLines {
    match fs::read_to_string(path) {
        Ok(text) => Ok(read(&text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err(format!("only root may read {path}"))
        }
        Err(error) => Err(format!("{path}: {error}")),
    }
}

/// Runs a program and returns its output.
fn run_program(program: &str, arguments: &[&str]) -> Result<String, String> {
    let finished = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => format!("{program} is not installed"),
            _ => format!("cannot start {program}: {error}"),
        })?;
    if !finished.status.success() {
        let stderr = String::from_utf8_lossy(&finished.stderr);
        let first = stderr
            .lines()
            .next()
            .unwrap_or("failed without a message")
            .trim();
        return Err(format!("{program}: {first}"));
    }
    Ok(String::from_utf8_lossy(&finished.stdout).into_owned())
}

/// Reads all sysctls with their values. A sysctl that can only be written has no value.
fn sysctls() -> Vec<String> {
    let top = Path::new("/proc/sys");
    let mut entries = Vec::new();
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        // An interface may be removed while its sysctls are listed.
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(top).unwrap_or(&path);
            let name = name.display().to_string();
            if !lines::is_sysctl(&name) {
                continue;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(path),
                _ => entries.push(sysctl_line(&name, &path)),
            }
        }
    }
    entries.sort();
    entries
}

fn sysctl_line(name: &str, path: &Path) -> String {
    match fs::read(path) {
        Ok(value) => {
            let value = String::from_utf8_lossy(&value);
            format!("{name} = {}", value.trim_end().replace('\n', " | "))
        }
        Err(_) => name.to_owned(),
    }
}

/// Returns the names in the directories in which programs leave files that outlive them.
fn runtime_files() -> Vec<String> {
    let mut paths = Vec::new();
    for directory in ["/run", "/run/lock", "/run/netns"] {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            paths.push(entry.path().display().to_string());
        }
    }
    paths.sort();
    paths
}
