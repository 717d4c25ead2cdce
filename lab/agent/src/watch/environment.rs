//! Detects the environment of the agent: the kernel version and the installed programs.

use std::collections::BTreeMap;
use std::fs;

use futures_util::future::join_all;

use crate::net::netns::NetNs;
use crate::program;
use svclab_model::evidence::Environment;

/// Programs that a plan may need. Each prints its version with `--version`.
const VERSIONED_PROGRAMS: [&str; 4] = [
    "iptables-nft-restore",
    "iptables-legacy-restore",
    "ipset",
    "nft",
];

/// Whether querying a program's version leaves the kernel unchanged. `ipset` also queries the
/// kernel for a version, which makes the kernel load `ip_set` (observed with ipset 7.17 on Debian's
/// 6.12).
fn is_version_query_safe(program: &str) -> bool {
    if program != "ipset" {
        return true;
    }
    match fs::read_to_string("/proc/modules") {
        Ok(modules) => modules.lines().any(|line| line.starts_with("ip_set ")),
        // The kernel cannot load modules.
        Err(_) => true,
    }
}

/// Reads the versions of the kernel and of the programs. Omits a program that is missing, prints no
/// version, or would make the kernel load a module.
pub(crate) async fn detect(own_namespace: &NetNs) -> Environment {
    let kernel = nix::sys::utsname::uname()
        .map(|name| name.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    let versions = join_all(VERSIONED_PROGRAMS.map(|program| async move {
        if !is_version_query_safe(program) {
            return None;
        }
        let finished = program::run(own_namespace, "itself", program, &["--version"], "")
            .await
            .ok()?;
        let line = finished.stdout.lines().next()?.trim().to_owned();
        finished.success.then(|| (program.to_owned(), line))
    }));
    let tools: BTreeMap<_, _> = versions.await.into_iter().flatten().collect();
    Environment { kernel, tools }
}
