//! Renders the files of a case: links to files beside the page, or the files themselves.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use data_encoding::BASE64;
use flate2::Compression;
use flate2::write::GzEncoder;
use maud::{Markup, html};

use crate::formats::capture::write_capture;
use crate::formats::evidence::EvidenceDocument;
use svclab_diagnostic::printable::{PrintableWriter, TextKind, printable};
use svclab_runner::results::CaseResult;
use svclab_runner::run::CaseEvidence;

/// Where the evidence of a case is.
#[derive(Debug, Clone)]
pub(crate) enum Attachments {
    /// In the page.
    Embedded,
    /// In this directory, relative to that of the page.
    Directory(String),
}

/// Renders the links to the files of a case.
pub(super) fn render(
    result: &CaseResult,
    seen: &CaseEvidence,
    attachments: &Attachments,
) -> Markup {
    let links: Vec<(String, String)> = match attachments {
        Attachments::Directory(directory) => ["capture.pcapng", "evidence.json", "explain.txt"]
            .map(|name| (name.to_owned(), format!("{}/{name}", escaped(directory))))
            .to_vec(),
        Attachments::Embedded => embedded(result, seen),
    };
    let lab = seen
        .prepared
        .sources
        .iter()
        .next()
        .map(|(_, source)| source.text().to_owned());
    html! {
        h3 { "Evidence" }
        ul.files {
            @for (name, link) in &links {
                li { a href=(link) download=(name) { (name) } }
            }
        }
        @if let Some(lab) = lab {
            details { summary { "The lab" } pre { (printable(&lab)) } }
        }
    }
}

/// Returns the files as data URLs, compressed.
fn embedded(result: &CaseResult, seen: &CaseEvidence) -> Vec<(String, String)> {
    let capture = compressed(|out| write_capture(out, seen));
    let evidence = compressed(|out| {
        let mut out = PrintableWriter::new(out, TextKind::Json);
        serde_json::to_writer(&mut out, &EvidenceDocument::new(result, seen))?;
        out.flush()
    });
    let files = [
        ("capture.pcapng.gz", capture),
        ("evidence.json.gz", evidence),
    ];
    let urls = files.into_iter().filter_map(|(name, file)| {
        let url = format!(
            "data:application/gzip;base64,{}",
            BASE64.encode(&file.ok()?)
        );
        Some((name.to_owned(), url))
    });
    urls.collect()
}

fn compressed(write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    write(&mut encoder)?;
    encoder.finish()
}

/// Escapes a relative path for a URL.
fn escaped(path: &str) -> String {
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
