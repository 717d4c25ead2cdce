//! Converts files to text, and assigns them to formats and nodes.

use super::DumpFilesError;
use crate::archive::ArchiveFile;
use crate::node::File;
use crate::recognise::{self, Content};
use svclab_ruleset::text::limits::MAX_BYTES;
use svclab_ruleset::tool::Format;

/// First bytes of an ELF file (System V ABI, "ELF Identification").
const ELF_SIGNATURE: &[u8] = b"\x7fELF";

/// First bytes of compressed files that are not unpacked, with the kind of file.
const PACKED_SIGNATURES: [(&[u8], &str); 1] = [(b"BZh", "compressed with bzip2")];

/// Directories into which collectors sort the files of one node by subject: of amazon-eks-ami v25
/// (`log-collector-script/linux/eks-log-collector.sh`), support-tools at 7b2593c
/// (`collection/rancher/v2.x/logs-collector/rancher2_logs_collector.sh`), and sos 4.8
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

/// Creates a file of a dump from its content.
pub(super) fn parse_file(file: ArchiveFile) -> Result<File, DumpFilesError> {
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
    // Windows programs begin a text with a byte order mark.
    let bytes = match bytes.strip_prefix(b"\xef\xbb\xbf") {
        Some(rest) => rest.to_vec(),
        None => bytes,
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid_length = error.utf8_error().valid_up_to();
        let newlines = error.as_bytes()[..valid_length]
            .iter()
            .filter(|b| **b == b'\n');
        DumpFilesError::NotUtf8 {
            name: name.clone(),
            line: newlines.count() + 1,
        }
    })?;
    let format = recognise::named_format(&name).or_else(|| match recognise::recognise(&text)? {
        Content::State(format) => Some(recognise::with_family(format, &text)),
        Content::Unread(_) => None,
    });
    Ok(File { name, format, text })
}
