//! Where the agent finds itself: the kernel and the programs it may use.

use std::collections::BTreeMap;
use std::fs;

use futures_util::future::join_all;

use super::netns::NetNs;
use super::program;
use svclab_model::evidence::Surroundings;

/// The programs a plan may need, and how each is asked for its version.
const PROGRAMS: [&str; 4] = [
    "iptables-nft-restore",
    "iptables-legacy-restore",
    "ipset",
    "nft",
];

/// Whether asking a program for its version leaves the kernel as it is. `ipset`
/// asks the kernel for a version, too, which makes it load `ip_set`: seen with
/// ipset 7.17 on Debian's 6.12.
fn is_harmless(program: &str) -> bool {
    if program != "ipset" {
        return true;
    }
    match fs::read_to_string("/proc/modules") {
        Ok(modules) => modules.lines().any(|line| line.starts_with("ip_set ")),
        // Nothing can be loaded.
        Err(_) => true,
    }
}

/// Asks the kernel and the programs for their versions. A program that is not
/// there, cannot say, or would make the kernel load something, is left out.
pub async fn look(home: &NetNs) -> Surroundings {
    let kernel = nix::sys::utsname::uname()
        .map(|name| name.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    let asked = join_all(PROGRAMS.map(|program| async move {
        if !is_harmless(program) {
            return None;
        }
        let finished = program::run(home, "itself", program, &["--version"], "")
            .await
            .ok()?;
        let line = finished.stdout.lines().next()?.trim().to_owned();
        finished.success.then(|| (program.to_owned(), line))
    }));
    let tools: BTreeMap<_, _> = asked.await.into_iter().flatten().collect();
    Surroundings { kernel, tools }
}
