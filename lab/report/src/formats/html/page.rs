//! Assembles pages: that of a run with its cases, and those of the cases.

use std::io;
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use super::case::{self, CasePage, CaseSection};
use super::packets::side_by_side::render_pairing;
use super::run;
use super::run::row::{CaseRow, ShownRun, anchor};
use crate::additions::Answer;
use crate::case_details::CaseDetails;
use crate::commands::compare::Comparison;
use crate::comparable::{Comparable, Pairing};
use crate::formats::gzip::{compressed, decompressed};
use svclab_diagnostic::printable::printable;

const STYLE: &str = concat!(
    include_str!("style.css"),
    include_str!("../../../../drawing/src/drawing.css")
);
const SCRIPT: &str = include_str!("script.js");

/// Name of a page in a directory.
pub(crate) const PAGE: &str = "index.html";

/// Identifier of the section of a case in a page of its own.
const ONLY_CASE: &str = "case";

/// Maximum size of a case that its page holds without compression. With the capture, the page is then
/// smaller than 300 kB.
pub(super) const MAX_PLAIN_BYTES: usize = 250_000;

/// Page of one or more runs, with the pages of their cases.
#[derive(Debug)]
pub(crate) struct Page {
    /// Answer of the command, if it is not `svclab run`.
    answer: Option<Answer>,
    cases: Vec<PageCase>,
}

/// Case of a page.
#[derive(Debug)]
struct PageCase {
    row: CaseRow,
    comparable: Comparable,
    section: Section,
}

/// Section of a case.
#[derive(Debug)]
enum Section {
    /// Compressed, in the page of the run.
    Inside(Vec<u8>),
    /// Compressed, in a page of its own.
    Own {
        compressed: Vec<u8>,
        /// Path of the page.
        path: PathBuf,
        /// Relative URL from there to the directory of the run's page.
        root: &'static str,
    },
    /// In a page that exists.
    Elsewhere,
}

impl Page {
    /// Creates a page without cases.
    pub(crate) const fn new(answer: Option<Answer>) -> Self {
        Self {
            answer,
            cases: Vec::new(),
        }
    }

    /// Adds a case with its section.
    ///
    /// # Errors
    ///
    /// Never in practice: sections are compressed in memory.
    pub(crate) fn add_section(&mut self, run: &str, case: &CasePage) -> io::Result<()> {
        let id = anchor(run, &case.details.result);
        self.add(run, case, (&id, format!("#{id}")), "#run", Section::Inside)
    }

    /// Adds a case that gets a page of its own at `path`. `href` is the relative URL of that page,
    /// and `root` that from there to the directory of this page.
    ///
    /// # Errors
    ///
    /// Never in practice: sections are compressed in memory.
    pub(crate) fn add_page(
        &mut self,
        case: &CasePage,
        path: PathBuf,
        href: String,
        root: &'static str,
    ) -> io::Result<()> {
        let back = format!("{root}{PAGE}");
        self.add("", case, (ONLY_CASE, href), &back, |compressed| {
            Section::Own {
                compressed,
                path,
                root,
            }
        })
    }

    fn add(
        &mut self,
        run: &str,
        case: &CasePage,
        (id, href): (&str, String),
        back: &str,
        section: impl FnOnce(Vec<u8>) -> Section,
    ) -> io::Result<()> {
        let CaseSection { headline, markup } = case::section(id, case);
        let markup = html! {
            p.back { a href=(back) { "All cases" } }
            (markup)
        };
        let compressed = compressed(|out| out.write_all(markup.into_string().as_bytes()))?;
        self.cases.push(PageCase {
            row: CaseRow::new(run, &case.details, headline, href),
            comparable: Comparable::new(&case.details),
            section: section(compressed),
        });
        Ok(())
    }

    /// Adds a case that has a page. `href` is the relative URL of that page.
    pub(crate) fn add_link(&mut self, run: &str, details: &CaseDetails, href: String) {
        self.cases.push(PageCase {
            row: CaseRow::new(run, details, case::headline(details), href),
            comparable: Comparable::new(details),
            section: Section::Elsewhere,
        });
    }

    /// Renders the page. The cases are in the order of the results.
    ///
    /// # Errors
    ///
    /// Never in practice: sections are decompressed in memory.
    pub(crate) fn render(
        &self,
        runs: &[ShownRun<'_>],
        comparison: Option<&Comparison>,
    ) -> io::Result<String> {
        let mut rows: Vec<&CaseRow> = self.cases.iter().map(|case| &case.row).collect();
        rows.sort_by_cached_key(|row| row.position(runs));
        let mut sections = Vec::new();
        for (case, pairing) in self.paired() {
            if let Section::Inside(section) = &case.section {
                let pairing = pairing.map(|(pairing, other)| {
                    let href = other.row.href.as_str();
                    render_pairing(&pairing, (&other.row.case, href)).into_string()
                });
                sections.push((&case.row, section, pairing));
            }
        }
        // A page about one case of moderate size is complete without its script.
        let only = match sections.as_slice() {
            [(_, section, _)] if self.cases.len() == 1 => {
                Some(decompressed_markup(section)?).filter(|markup| markup.len() <= MAX_PLAIN_BYTES)
            }
            _ => None,
        };
        let body = html! {
            main {
                (run::render(runs, &rows, self.answer.as_ref(), comparison))
                @if only.is_none() && !sections.is_empty() {
                    noscript {
                        p.warning {
                            "The cases need JavaScript. The pages of "
                            code { "--report DIRECTORY" } " do not."
                        }
                    }
                }
                @for (row, ..) in &sections {
                    section.case #(row.id) aria-label=(printable(&row.case)) {
                        @if let Some(markup) = &only { (PreEscaped(markup)) }
                    }
                }
            }
            @for (row, section, pairing) in sections.iter().filter(|_| only.is_none()) {
                (stored(&row.id, section))
                @if let Some(pairing) = pairing {
                    (stored(&row.id, &compressed(|out| out.write_all(pairing.as_bytes()))?))
                }
            }
        };
        let title = match &self.answer {
            Some(answer) => printable(&answer.title).into_owned(),
            None => run::title(runs),
        };
        Ok(document(&title, &body, &run::made_by(runs)))
    }

    /// Renders the pages of the cases that have one of their own, with their paths.
    pub(crate) fn pages(&self) -> impl Iterator<Item = io::Result<(&Path, String)>> {
        let paired = self.paired().into_iter();
        paired.filter_map(|(case, pairing)| {
            let Section::Own {
                compressed,
                path,
                root,
            } = &case.section
            else {
                return None;
            };
            let pairing = pairing.map(|(pairing, other)| {
                let href = format!("{root}{}", other.row.href);
                render_pairing(&pairing, (&other.row.case, &href))
            });
            let page = decompressed_markup(compressed)
                .map(|markup| (path.as_path(), render_case(&case.row, &markup, pairing)));
            Some(page)
        })
    }

    /// Returns the cases, each with the comparison with another case. The result does not depend on
    /// the order in which the cases ended.
    fn paired(&self) -> Vec<(&PageCase, Option<(Pairing<'_>, &PageCase)>)> {
        let mut cases: Vec<&PageCase> = self.cases.iter().collect();
        cases.sort_by(|left, right| left.row.id.cmp(&right.row.id));
        let comparable: Vec<&Comparable> = cases.iter().map(|case| &case.comparable).collect();
        let paired = cases.iter().enumerate().map(|(index, case)| {
            let pairing = Comparable::pair(&comparable, index);
            let pairing = pairing.map(|pairing| {
                let other = cases[pairing.other];
                (pairing, other)
            });
            (*case, pairing)
        });
        paired.collect()
    }
}

/// Stores markup of a section for the script.
fn stored(id: &str, compressed: &[u8]) -> Markup {
    html! {
        script type="application/gzip" data-section=(id) { (PreEscaped(BASE64.encode(compressed))) }
    }
}

fn decompressed_markup(section: &[u8]) -> io::Result<String> {
    String::from_utf8(decompressed(section, usize::MAX)?).map_err(io::Error::other)
}

/// Renders the page of one case.
fn render_case(row: &CaseRow, markup: &str, pairing: Option<Markup>) -> String {
    let body = html! {
        main {
            section.case #(ONLY_CASE) aria-label=(printable(&row.case)) {
                (PreEscaped(markup))
                @if let Some(pairing) = pairing { (pairing) }
            }
        }
    };
    let title = format!("svclab: {} {}", row.status, printable(&row.case));
    document(&title, &body, &run::made_by(&[]))
}

fn document(title: &str, body: &Markup, made_by: &str) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(policy());
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (body)
                footer.note { (printable(made_by)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    document.into_string()
}

/// Returns the content security policy: nothing is loaded, and only this style and script run.
fn policy() -> String {
    let hash = |text: &str| BASE64.encode(&Sha256::digest(text));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; form-action 'none'; \
         base-uri 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
}
