//! Renders the history of kube-proxy: what each version added and removed.

use std::fmt::Write as _;

use svclab_report::version_history::version_history;
use svclab_rules::kube_proxy::Version;

use super::{NOTE, escape};

/// Returns the chapter, with the newest version first.
pub(super) fn render() -> String {
    let (oldest, newest) = (Version::OLDEST, Version::NEWEST);
    let mut text = format!(
        "# History of kube-proxy\n\n{NOTE}\n\nThis chapter lists what each version of kube-proxy \
         added to its rules and removed from them, from {oldest} to {newest}. `svclab rules \
         --history VERSION` prints one version.\n\n\
         - \"Verified against recorded rules\": a kube-proxy of this release ran, and svclab's \
         rules equal its rules.\n\
         - Sources are files of kubernetes/kubernetes at the given tags, unless another project is \
         named. `#N` is a pull request or an issue of kubernetes/kubernetes.\n\
         - A behaviour of {oldest} that all versions have is not listed.\n"
    );
    let versions: Vec<Version> = Version::minors().collect();
    for version in versions.into_iter().rev() {
        for line in version_history(version, usize::MAX).lines() {
            if let Some(version) = line.strip_prefix("kube-proxy ") {
                let _ = writeln!(text, "\n## {version}");
            } else if let Some(entry) = line.strip_prefix("  - ") {
                let _ = writeln!(text, "- {}", escape(entry));
            } else if let Some(mode) = line.strip_prefix("  ") {
                let (mode, provenance) = mode.split_once(' ').expect("a mode");
                let _ = writeln!(text, "- {mode}: {}", provenance.trim());
            } else if line.is_empty() {
                text.push('\n');
            } else {
                let (first, rest) = line.split_at(1);
                let _ = writeln!(text, "### {}{rest}", first.to_uppercase());
            }
        }
    }
    text
}
