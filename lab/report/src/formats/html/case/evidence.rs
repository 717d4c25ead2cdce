//! Renders the files of a case: links to files beside the page, or the files themselves.

use std::fmt::Write as _;
use std::io;

use data_encoding::BASE64;
use maud::{Markup, html};

use super::CasePage;
use super::shown::shown_only;
use crate::case_details::CaseDetails;
use crate::formats::capture::write_capture;
use crate::formats::evidence::{EVIDENCE, EvidenceDocument};
use crate::formats::gzip::compressed;
use svclab_diagnostic::printable::printable;
use svclab_model::evidence::Evidence;
use svclab_runner::results::CaseStatus;

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
fn includes_evidence(cases: usize, status: CaseStatus) -> bool {
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

/// Returns the page of a case with its files in it: the capture and the evidence of the connections
/// that the page shows. `cases` is the number of cases of the whole page.
///
/// # Errors
///
/// When a file cannot be encoded.
pub(in crate::formats) fn with_embedded_files(
    details: CaseDetails,
    evidence: Option<&Evidence>,
    cases: usize,
) -> io::Result<CasePage> {
    let Some(evidence) = evidence else {
        return Ok(CasePage::new(details, Vec::new()));
    };
    let (shown, evidence) = shown_only(&details, evidence);
    let capture = compressed(|out| write_capture(out, [], &evidence, &shown.stages))?;
    let mut files = vec![embedded("capture.pcapng.gz", &capture)];
    let with_evidence = includes_evidence(cases, details.result.result);
    if with_evidence {
        let document = EvidenceDocument::new(&shown, &evidence);
        files.push(embedded(EVIDENCE, &document.file()?));
    }
    Ok(CasePage {
        has_reduced_files: true,
        omits_evidence: !with_evidence,
        ..CasePage::new(details, files)
    })
}

/// Returns a compressed file as a data URL.
fn embedded(name: &str, file: &[u8]) -> FileLink {
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
