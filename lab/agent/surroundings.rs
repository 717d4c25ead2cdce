//! Where the agent finds itself: the kernel and the programs it may use.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::netns::NetNs;
use super::program;
use crate::evidence::Surroundings;

/// The programs a plan may need, and how each is asked for its version.
const PROGRAMS: [&str; 3] = ["iptables-nft-restore", "iptables-legacy-restore", "ipset"];

/// Asks the kernel and the programs for their versions. A program that is not
/// there, or cannot say, is left out.
pub async fn look(home: &NetNs) -> Surroundings {
    let kernel = nix::sys::utsname::uname()
        .map(|name| name.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    let asked = join_all(PROGRAMS.map(|program| async move {
        let finished = program::run(home, "itself", program, &["--version"], "")
            .await
            .ok()?;
        let line = finished.stdout.lines().next()?.trim().to_owned();
        finished.success.then(|| (program.to_owned(), line))
    }));
    let tools: BTreeMap<_, _> = asked.await.into_iter().flatten().collect();
    Surroundings { kernel, tools }
}
