//! Lists files of a bundle that are not read. Directories without a file of the dump are one item.

use std::collections::{BTreeMap, BTreeSet};

use crate::archive::{Skipped, SkippedFile};
use crate::gap::Gap;
use crate::node::File;
use svclab_ruleset::Family;
use svclab_ruleset::tool::Format;

/// Reason for a directory whose files have different reasons.
const SEVERAL_REASONS: &str = "no file is output of a supported program";

/// Returns the files that were skipped for a reason. `bundle` is the name of the directory or
/// archive.
pub(super) fn list_gaps(bundle: &str, read: &[File], skipped: Vec<SkippedFile>) -> Vec<Gap> {
    let read_directories: BTreeSet<&str> = read
        .iter()
        .flat_map(|file| directories(bundle, &file.name))
        .collect();
    let shown = shown_formats(read);
    let families: BTreeSet<(Format, Family)> = skipped
        .iter()
        .filter_map(|file| file.skipped.only)
        .collect();
    let has_other = |only: Option<(Format, Family)>| {
        only.is_some_and(|(format, family)| families.contains(&(format, family.other())))
    };
    let is_shown = |skipped: &Skipped| {
        let mut formats = skipped.same_as.iter();
        formats.any(|format| shown.contains(format))
    };
    let mut gaps = Vec::new();
    let mut groups: BTreeMap<String, (Vec<SkippedFile>, bool)> = BTreeMap::new();
    for file in skipped {
        if file.skipped.reason.is_empty() || has_other(file.skipped.only) {
            continue;
        }
        if !file.skipped.affects.is_empty() {
            let is_shown = is_shown(&file.skipped);
            let Skipped {
                reason, affects, ..
            } = file.skipped;
            gaps.push(Gap {
                name: file.path,
                reason,
                affects: if is_shown { String::new() } else { affects },
                is_uncompared: !is_shown,
            });
            continue;
        }
        let unread_directory = directories(bundle, &file.path)
            .find(|directory| !read_directories.contains(directory))
            .map(str::to_owned);
        // A directory without a file of the dump has no state of the node.
        let is_uncompared =
            file.skipped.is_uncompared && unread_directory.is_none() && !is_shown(&file.skipped);
        let key = unread_directory.unwrap_or_else(|| file.path.clone());
        let (files, is_open) = groups.entry(key).or_default();
        files.push(file);
        *is_open |= is_uncompared;
    }
    gaps.extend(
        groups
            .into_iter()
            .map(|(name, (files, is_uncompared))| Gap {
                is_uncompared,
                ..group_gap(&name, files)
            }),
    );
    gaps
}

/// Chains that kube-proxy writes in iptables mode, in which it has no virtual servers (kubernetes
/// v1.30, `pkg/proxy/iptables/proxier.go`, `servicePortEndpointChainNamePrefix`).
const IPTABLES_MODE: &str = "\n:KUBE-SEP-";

/// Returns the formats of the files, and those whose state the files show.
fn shown_formats(files: &[File]) -> BTreeSet<Format> {
    let mut formats: BTreeSet<Format> = files.iter().filter_map(|file| file.format).collect();
    if files.iter().any(|file| file.text.contains(IPTABLES_MODE)) {
        formats.insert(Format::VirtualServers);
    }
    formats
}

fn group_gap(directory: &str, mut files: Vec<SkippedFile>) -> Gap {
    let count = files.len();
    let mut reasons = files.iter().map(|file| &file.skipped.reason);
    let first_reason = reasons.next().cloned().unwrap_or_default();
    let reason = if reasons.all(|reason| *reason == first_reason) {
        first_reason
    } else {
        SEVERAL_REASONS.to_owned()
    };
    let name = match files.pop() {
        Some(file) if count == 1 => file.path,
        _ => format!("{directory}/ ({count} files)"),
    };
    Gap {
        name,
        reason,
        affects: String::new(),
        is_uncompared: false,
    }
}

/// Returns the directories of a path below the bundle, from the top.
fn directories<'p>(bundle: &str, path: &'p str) -> impl Iterator<Item = &'p str> {
    let start = if path.starts_with(bundle) {
        bundle.len() + 1
    } else {
        0
    };
    path.match_indices(['/', ':'])
        .map(|(index, _)| index)
        .filter(move |index| *index > start)
        .map(|index| &path[..index])
}
