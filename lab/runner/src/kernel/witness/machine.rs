//! Reads the network state of this machine, and state that may depend on it. Never makes the kernel
//! load a module: a module that is not loaded has no state.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::certify::{Found, Part, State, lines};
use crate::kernel::lists;
use crate::kernel::modules::{self, Modules};
use svclab_agent::PATH;

/// Reads all sections except the processes.
#[must_use]
pub fn look() -> State {
    let modules = Modules::new(&lists::read());
    let is_loaded = |module: &str| modules.state(module) == modules::State::Present;
    let when = |module: &str, read: fn() -> Found| {
        if is_loaded(module) {
            read()
        } else {
            Ok(Vec::new())
        }
    };
    State::default()
        .with(Part::Links, links())
        .with(Part::Addresses, addresses())
        .with(Part::Routes, both("route show table all", lines::routes))
        .with(Part::Rules, both("rule", lines::rules))
        .with(Part::Neighbours, neighbours())
        .with(Part::Nftables, when("nf_tables", nftables))
        .with(Part::IptablesNft, when("nf_tables", iptables_nft))
        .with(Part::IptablesLegacy, iptables_legacy())
        .with(Part::Ipset, when("ip_set", ipset))
        .with(Part::Ipvs, file("/proc/net/ip_vs", lines::ipvs))
        .with(Part::Sysctls, Ok(sysctls()))
        .with(Part::Modules, file("/proc/modules", lines::modules))
        .with(Part::Mounts, file("/proc/self/mountinfo", lines::mounts))
        .with(Part::Run, Ok(names()))
}

fn links() -> Found {
    lines::links(&ip(&["-d", "link"])?)
}

fn addresses() -> Found {
    lines::addresses(&ip(&["addr"])?)
}

fn neighbours() -> Found {
    let mut all = lines::neighbours(&ip(&["neigh", "show", "nud", "permanent"])?)?;
    all.extend(lines::neighbours(&ip(&["neigh", "show", "proxy"])?)?);
    all.sort();
    Ok(all)
}

/// Reads a section from the output of `ip` for both families.
fn both(words: &str, read: fn(&str) -> Result<Vec<String>, String>) -> Found {
    let words: Vec<&str> = words.split(' ').collect();
    let mut all = Vec::new();
    for family in ["-4", "-6"] {
        let arguments = [&[family], words.as_slice()].concat();
        let found = read(&ip(&arguments)?)?;
        all.extend(found.into_iter().map(|line| format!("{family} {line}")));
    }
    Ok(all)
}

fn ip(arguments: &[&str]) -> Result<String, String> {
    run("ip", &[&["-j"], arguments].concat())
}

fn nftables() -> Found {
    lines::nftables(&run("nft", &["-j", "-s", "list", "ruleset"])?)
}

fn iptables_nft() -> Found {
    let mut all = lines::iptables(&run("iptables-nft-save", &[])?);
    all.extend(lines::iptables(&run("ip6tables-nft-save", &[])?));
    Ok(all)
}

/// Reads only the tables that the kernel reports, because reading another table creates it.
fn iptables_legacy() -> Found {
    let mut all = Vec::new();
    for (family, program) in [
        ("ip", "iptables-legacy-save"),
        ("ip6", "ip6tables-legacy-save"),
    ] {
        let tables = file(&format!("/proc/net/{family}_tables_names"), |text| {
            text.lines().map(str::to_owned).collect()
        })?;
        if !tables.is_empty() {
            all.extend(lines::iptables(&run(program, &[])?));
        }
    }
    Ok(all)
}

fn ipset() -> Found {
    run("ipset", &["save"]).map(|text| lines::ipset(&text))
}

/// Reads the lines of a file. A missing file has no lines.
fn file(path: &str, read: impl Fn(&str) -> Vec<String>) -> Found {
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
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let finished = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => format!("{program} is not installed"),
            _ => format!("{program} cannot be started: {error}"),
        })?;
    if !finished.status.success() {
        let said = String::from_utf8_lossy(&finished.stderr);
        let first = said.lines().next().unwrap_or("it failed").trim();
        return Err(format!("{program}: {first}"));
    }
    Ok(String::from_utf8_lossy(&finished.stdout).into_owned())
}

/// Reads all sysctls with their values. A sysctl that can only be written has no value.
fn sysctls() -> Vec<String> {
    let top = Path::new("/proc/sys");
    let mut all = Vec::new();
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        // An interface may be removed while its sysctls are listed.
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(top).unwrap_or(&path);
            let name = name.display().to_string();
            if !lines::is_setting(&name) {
                continue;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(path),
                _ => all.push(setting(&name, &path)),
            }
        }
    }
    all.sort();
    all
}

fn setting(name: &str, path: &Path) -> String {
    match fs::read(path) {
        Ok(value) => {
            let value = String::from_utf8_lossy(&value);
            format!("{name} = {}", value.trim_end().replace('\n', " | "))
        }
        Err(_) => name.to_owned(),
    }
}

/// Returns the names in the directories in which programs leave files that outlive them.
fn names() -> Vec<String> {
    let mut all = Vec::new();
    for directory in ["/run", "/run/lock", "/run/netns"] {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            all.push(entry.path().display().to_string());
        }
    }
    all.sort();
    all
}
