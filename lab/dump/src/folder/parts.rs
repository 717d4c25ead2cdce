//! Converts files to texts of single programs, and assigns them to formats and nodes.

use super::DumpFilesError;
use super::missing::missing_state;
use crate::archive::{ArchiveFile, Skipped, SkippedFile};
use crate::node::File;
use crate::recognise::{self, Listing, Sections};
use svclab_ruleset::Family;
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::text::limits::MAX_BYTES;
use svclab_ruleset::tool::{DumpedBackend, Format};

/// First bytes of an ELF file (System V ABI, "ELF Identification").
const ELF_SIGNATURE: &[u8] = b"\x7fELF";

/// First bytes of compressed files that are not unpacked, with the kind of file.
const PACKED_SIGNATURES: [(&[u8], &str); 1] = [(b"BZh", "compressed with bzip2")];

/// Directories into which collectors sort the files of one node by subject: of amazon-eks-ami v20260724
/// (`log-collector-script/linux/eks-log-collector.sh`), support-tools at 7b2593c
/// (`collection/rancher/v2.x/logs-collector/rancher2_logs_collector.sh`), and sos 4.12.0
/// (`sos/report/plugins`).
const SUBJECTS: [&str; 9] = [
    ".",
    "firewall_tables",
    "ipvs",
    "kernel",
    "networking",
    "sos_commands",
    "sysctls",
    "system",
    "systeminfo",
];

/// Returns the part of a path that identifies the node: without the name of the program, and
/// without directories of subjects.
pub(super) fn dump_prefix(path: &str) -> String {
    let name = path.strip_suffix(".txt").unwrap_or(path);
    let format = recognise::file_name(name)
        .rsplit('.')
        .next()
        .unwrap_or_default();
    let is_dump_name = Format::from_file_name(format).is_some();
    let mut prefix = if is_dump_name {
        name.strip_suffix(format).unwrap_or(name)
    } else {
        path.strip_suffix(recognise::file_name(path))
            .unwrap_or(path)
    };
    loop {
        prefix = prefix.trim_end_matches(['.', '/', ':']);
        let directory = recognise::file_name(prefix);
        match prefix.strip_suffix(directory) {
            Some(above) if SUBJECTS.contains(&directory) => prefix = above,
            _ => return prefix.to_owned(),
        }
    }
}

/// Texts of single programs in a file.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) files: Vec<File>,
    pub(super) skipped: Vec<SkippedFile>,
    /// Listings of iptables, with their places.
    pub(super) listings: Vec<(String, Listing)>,
}

/// Splits a file of a bundle into texts of single programs.
pub(super) fn parse_file(file: ArchiveFile) -> Result<Parts, DumpFilesError> {
    let name = file.path.clone();
    if recognise::file_name(&name) == recognise::MISSING_FILE {
        return Ok(Parts {
            skipped: missing_state(&name, &String::from_utf8_lossy(&file.bytes)),
            ..Parts::default()
        });
    }
    let text = decode(file)?;
    let sections = recognise::split(&name, &text);
    if sections.hosts.len() > 1 {
        return Err(DumpFilesError::SeveralHosts {
            name,
            hosts: sections.hosts,
        });
    }
    let skipped = skipped_sections(&name, &sections);
    let listings: Vec<(String, Listing)> = sections
        .listings
        .iter()
        .map(|(line, listing)| (place(&name, *line), listing.clone()))
        .collect();
    let named = recognise::named_format(&name);
    let expected = named.or_else(|| recognise::empty_format(&name, &text));
    let whole = |format: Option<Format>, text: String| {
        let name = name.clone();
        vec![File { name, format, text }]
    };
    let files = match (named, sections.outputs.as_slice()) {
        // The name states the family and the backend.
        (Some(named), [(format, own)]) if named.is_compatible_with(*format) => {
            whole(Some(named), own.clone())
        }
        (Some(named), [_]) if skipped.is_empty() => whole(Some(named), text),
        (_, []) if !skipped.is_empty() || !listings.is_empty() => Vec::new(),
        (_, []) => match recognise::failure(&text) {
            Some(line) => {
                let reason = format!("the collector recorded `{line}`");
                let skipped = Skipped {
                    same_as: if recognise::file_name(&name).contains("ipvsadm") {
                        &[Format::VirtualServers]
                    } else {
                        &[]
                    },
                    ..Skipped::with_effect(reason, recognise::LACK)
                };
                return Ok(Parts {
                    skipped: vec![SkippedFile {
                        path: name,
                        skipped,
                    }],
                    ..Parts::default()
                });
            }
            None => whole(expected, text),
        },
        (_, outputs) => outputs
            .iter()
            .map(|(format, text)| File {
                name: name.clone(),
                format: Some(*format),
                text: text.clone(),
            })
            .collect(),
    };
    Ok(Parts {
        files,
        skipped,
        listings,
    })
}

/// Returns the place of a section in messages.
fn place(name: &str, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("{name} line {line}"),
        None => name.to_owned(),
    }
}

/// Returns the gaps of listings of iptables. Their rules are reported only if the dump has no
/// complete rules of the family.
pub(super) fn listing_gaps(files: &[File], listings: Vec<(String, Listing)>) -> Vec<SkippedFile> {
    let gaps = listings.into_iter().map(|(path, listing)| {
        let complete = complete_rules(files, listing.family);
        let reason = listing.reason(complete);
        let affects = match complete {
            Some(_) => String::new(),
            None => listing.effect(),
        };
        SkippedFile {
            path,
            skipped: Skipped::with_effect(reason, affects),
        }
    });
    gaps.collect()
}

/// Returns the command whose output in the dump has the complete iptables rules of a family: the
/// saved rules, or the tables of iptables-nft in nftables.
fn complete_rules(files: &[File], family: Family) -> Option<&'static str> {
    let (save, table, object) = match family {
        Family::V4 => (
            "iptables-save",
            "table ip ",
            r#"{"table":{"family":"ip","name":""#,
        ),
        Family::V6 => (
            "ip6tables-save",
            "table ip6 ",
            r#"{"table":{"family":"ip6","name":""#,
        ),
    };
    let is_save = |file: &File| matches!(file.format, Some(Format::Rules(ip, _)) if ip == family);
    let is_table = |rest: &str| {
        let name = rest.split([' ', '"']).next().unwrap_or_default();
        Table::from_name(name).is_some()
    };
    let has_tables = |file: &File| {
        if file.format != Some(Format::Nft) {
            return false;
        }
        if file.text.trim_ascii_start().starts_with('{') {
            let spaces = |c: char| c.is_ascii_whitespace();
            let text: String = file.text.split(spaces).collect();
            text.split(object).skip(1).any(is_table)
        } else {
            let mut lines = file.text.lines();
            lines.any(|line| line.strip_prefix(table).is_some_and(is_table))
        }
    };
    if files.iter().any(is_save) {
        Some(save)
    } else {
        files.iter().any(has_tables).then_some("nft list ruleset")
    }
}

fn skipped_sections(name: &str, sections: &Sections) -> Vec<SkippedFile> {
    let skipped = sections.gaps.iter().map(|gap| SkippedFile {
        path: place(name, gap.line),
        skipped: gap.skipped.clone(),
    });
    skipped.collect()
}

/// Returns the text of a file.
fn decode(file: ArchiveFile) -> Result<String, DumpFilesError> {
    let ArchiveFile { path: name, bytes } = file;
    if let Some((_, kind)) = PACKED_SIGNATURES
        .iter()
        .find(|(signature, _)| bytes.starts_with(signature))
    {
        return Err(DumpFilesError::Packed { name, what: kind });
    }
    if bytes.starts_with(ELF_SIGNATURE) {
        return Err(DumpFilesError::Executable(name));
    }
    if bytes.len() > MAX_BYTES {
        return Err(DumpFilesError::TooLarge { name });
    }
    let newlines = |length: usize| {
        let valid = bytes.iter().take(length);
        valid.filter(|byte| **byte == b'\n').count()
    };
    crate::text::decode(&bytes).map_err(|length| DumpFilesError::NotUtf8 {
        name,
        line: newlines(length) + 1,
    })
}

/// Parts of the first line of an `iptables-save` for nftables (iptables 1.8.0, 1.8.2 and 1.8.9,
/// `iptables/xtables-save.c`).
const NFT_MARKS: [&str; 3] = ["(nf_tables)", "xtables-save", "-nft-save"];

/// Beginning of the first line of an `iptables-save`.
const HEADER: &str = "# Generated by";

/// Parts of the comment of `iptables-nft-save` about a table that it does not print, or some of
/// whose chains it does not print (iptables 1.8.9, `iptables/xtables-save.c`, `__do_output`).
const UNPRINTED_TABLE: [&str; 2] = ["# Table `", "use 'nft' tool"];

/// Part of a warning of `iptables-nft-save` on a node with rules of iptables-legacy (iptables 1.8.9,
/// `iptables/nft.c`, `nft_check_xt_legacy`).
const LEGACY_PRESENT: &str = "-legacy tables present";

/// Assigns the rules that state their program, but not nftables, to iptables-legacy, if other rules
/// of the family state nftables.
pub(super) fn assign_backends(files: &mut [File]) {
    for family in [Family::V4, Family::V6] {
        let format = Some(Format::Rules(family, DumpedBackend::Default));
        let is_nft = |file: &File| {
            let mut header = file.text.lines().filter(|line| line.starts_with(HEADER));
            let has_mark = |line: &str| NFT_MARKS.iter().any(|mark| line.contains(mark));
            file.name.contains("nft") || header.next().is_some_and(has_mark)
        };
        let own = || files.iter().filter(|file| file.format == format);
        if !own().any(is_nft) || own().all(is_nft) {
            continue;
        }
        for file in files.iter_mut().filter(|file| file.format == format) {
            if !is_nft(file) && file.text.contains(HEADER) {
                file.format = Some(Format::Rules(family, DumpedBackend::Legacy));
            }
        }
    }
}

/// Returns the gaps of rules of iptables-legacy that the dump lacks, according to comments in other
/// rules.
pub(super) fn missing_legacy_rules(files: &[File]) -> Vec<SkippedFile> {
    let mut gaps = Vec::new();
    for (family, program) in [(Family::V4, "iptables"), (Family::V6, "ip6tables")] {
        let legacy = Some(Format::Rules(family, DumpedBackend::Legacy));
        if files.iter().any(|file| file.format == legacy) {
            continue;
        }
        let warning = format!("# Warning: {program}{LEGACY_PRESENT}");
        if let Some(file) = files.iter().find(|file| file.text.contains(&warning)) {
            let reason = format!(
                "which rules does {program}-legacy have? Run `{program}-legacy-save` on the node \
                 and add its output to the dump"
            );
            let affects = "packets pass as if these rules did not exist";
            gaps.push(SkippedFile {
                path: file.name.clone(),
                skipped: Skipped::with_effect(reason, affects),
            });
        }
    }
    gaps
}

/// Returns the gaps of tables that `iptables-save` does not print whole. `nft list ruleset` prints
/// them.
pub(super) fn unprinted_tables(files: &[File]) -> Vec<SkippedFile> {
    let saved = files
        .iter()
        .filter(|file| matches!(file.format, Some(Format::Rules(..))));
    let comments = saved.flat_map(|file| {
        let [start, end] = UNPRINTED_TABLE;
        let lines = file.text.lines().map(str::trim);
        let lines = lines.filter(move |line| line.starts_with(start) && line.contains(end));
        lines.map(move |line| (&file.name, line.trim_start_matches(['#', ' '])))
    });
    let gaps = comments.map(|(path, comment)| SkippedFile {
        path: path.clone(),
        skipped: Skipped {
            same_as: &[Format::Nft],
            ..Skipped::with_effect(
                format!("not complete: \"{comment}\""),
                "packets pass as if these chains did not exist",
            )
        },
    });
    gaps.collect()
}
