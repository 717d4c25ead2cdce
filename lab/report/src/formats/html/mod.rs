//! Renders runs and cases as HTML pages that open from disk: the result of each case, what happened
//! to its packets, and the evidence. Pages are made from documents, so that they can be made again
//! from the files of a run.
//!
//! A page makes no request. Its policy allows only its own style and script, by their hashes. All
//! text of users and programs is escaped by `maud`.

mod answer;
mod case;
mod checks;
mod comparison;
mod connections;
pub(crate) mod evidence;
mod fixes;
mod flows;
mod ladder;
mod lanes;
mod markdown;
mod page;
mod row;
mod run;
mod shown;
mod side_by_side;
mod writer;

pub(crate) use case::CasePage;
pub(crate) use evidence::FileLink;
pub(crate) use page::{Page, render_case};
pub(crate) use row::ShownRun;
pub use writer::HtmlWriter;

#[cfg(test)]
mod tests;
