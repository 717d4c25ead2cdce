//! Renders the files of a case: links to files beside the page, or the files themselves.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use data_encoding::BASE64;
use flate2::Compression;
use flate2::write::GzEncoder;
use maud::{Markup, html};

use crate::case_details::CaseDetails;
use crate::formats::capture::write_capture;
use crate::formats::evidence::EvidenceDocument;
use svclab_diagnostic::printable::{PrintableWriter, TextKind, printable};
use svclab_runner::run::CaseEvidence;

/// Link to a file.
#[derive(Debug, Clone)]
pub(crate) struct FileLink {
    pub name: String,
    /// Relative URL, or the file itself as a data URL.
    pub href: String,
}

/// Renders the links to the files of a case, and its lab. `are_reduced` states that the files contain
/// only the connections that the page shows.
pub(super) fn render(files: &[FileLink], are_reduced: bool, lab: Option<&str>) -> Markup {
    html! {
        @if !files.is_empty() || lab.is_some() { h2 { "Evidence" } }
        @if !files.is_empty() {
            ul.files {
                @for FileLink { name, href } in files {
                    li { a href=(href) download=(name) { (name) } }
                }
            }
            @if are_reduced {
                p.note {
                    "These files contain the connections that the page shows. "
                    code { "--report DIRECTORY" } " writes all."
                }
            }
        }
        @if let Some(lab) = lab {
            details { summary { "The lab" } pre { (printable(lab)) } }
        }
    }
}

/// Returns the files of a case as data URLs, compressed.
///
/// # Errors
///
/// When a file cannot be encoded.
pub(in crate::formats::html) fn embedded_files(
    details: &CaseDetails,
    seen: &CaseEvidence,
) -> io::Result<Vec<FileLink>> {
    let capture = compressed(|out| write_capture(out, seen))?;
    let evidence = compressed(|out| {
        let mut out = PrintableWriter::new(out, TextKind::Json);
        serde_json::to_writer(&mut out, &EvidenceDocument::new(details, seen))?;
        out.flush()
    })?;
    let files = [
        ("capture.pcapng.gz", capture),
        ("evidence.json.gz", evidence),
    ];
    Ok(files.map(|(name, file)| embedded(name, &file)).into())
}

/// Returns a compressed file as a data URL.
pub(crate) fn embedded(name: &str, file: &[u8]) -> FileLink {
    FileLink {
        name: name.to_owned(),
        href: format!("data:application/gzip;base64,{}", BASE64.encode(file)),
    }
}

pub(crate) fn compressed(
    write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    write(&mut encoder)?;
    encoder.finish()
}

/// Escapes a relative path for a URL.
pub(crate) fn escape_path(path: &str) -> String {
    let mut url = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b'-'
            | b'.'
            | b'_'
            | b'/'
            | b'='
            | b','
            | b'@'
            | b'+' => {
                url.push(char::from(byte));
            }
            _ => {
                let _ = write!(url, "%{byte:02X}");
            }
        }
    }
    url
}
