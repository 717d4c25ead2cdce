//! Renders the files of a case: links to files beside the page, or the files themselves.

use std::fmt::Write as _;
use std::io;

use data_encoding::BASE64;
use maud::{Markup, html};

use super::CasePage;
use crate::case_details::CaseDetails;
use crate::formats::capture::write_capture;
use crate::formats::evidence::{EVIDENCE, EvidenceDocument};
use crate::formats::gzip::compressed;
use svclab_diagnostic::printable::printable;
use svclab_runner::results::CaseStatus;
use svclab_runner::run::CaseEvidence;

/// Link to a file.
#[derive(Debug, Clone)]
pub(crate) struct FileLink {
    pub name: String,
    /// Relative URL, or the file itself as a data URL.
    pub href: String,
}

/// Maximum number of cases of a page that contains the evidence of passed cases.
const MAX_CASES: usize = 20;

/// Whether a page with a number of cases contains the evidence of a case. With that of hundreds of
/// passed cases, a page would be too large to send.
pub(in crate::formats) fn includes_evidence(cases: usize, status: CaseStatus) -> bool {
    cases <= MAX_CASES || status != CaseStatus::Pass
}

/// Renders the links to the files of a case, and its lab: the file of the lab, and the files of
/// objects that it names.
pub(super) fn render(case: &CasePage, lab: Option<&str>) -> Markup {
    let files = &case.files;
    let made = &case.details.result.made;
    html! {
        @if !files.is_empty() || lab.is_some() { h2 { "Evidence" } }
        @if !files.is_empty() {
            ul.files {
                @for FileLink { name, href } in files {
                    li { a href=(href) download=(name) { (name) } }
                }
            }
            @if case.has_reduced_files || case.omits_evidence {
                p.note {
                    @if case.has_reduced_files {
                        "These files contain the connections that the page shows. "
                    }
                    @if case.omits_evidence {
                        "A page with more than " (MAX_CASES) " cases omits the evidence of passed cases. "
                    }
                    code { "--report DIRECTORY" } " writes all."
                }
            }
        }
        @if let Some(lab) = lab {
            details { summary { "The lab" } pre { (printable(lab)) } }
        }
        @for (name, text) in &case.details.object_files {
            details { summary { "Objects in " (printable(name)) } pre { (printable(text)) } }
        }
        @if !made.is_empty() {
            details {
                summary { "Pods and load balancers that svclab made" }
                ul { @for line in made { li { (line) } } }
            }
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
    with_evidence: bool,
) -> io::Result<Vec<FileLink>> {
    let capture = compressed(|out| write_capture(out, seen))?;
    let capture = embedded("capture.pcapng.gz", &capture);
    if !with_evidence {
        return Ok(vec![capture]);
    }
    let evidence = EvidenceDocument::new(details, seen).file()?;
    Ok(vec![capture, embedded(EVIDENCE, &evidence)])
}

/// Returns a compressed file as a data URL.
pub(crate) fn embedded(name: &str, file: &[u8]) -> FileLink {
    FileLink {
        name: name.to_owned(),
        href: format!("data:application/gzip;base64,{}", BASE64.encode(file)),
    }
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
