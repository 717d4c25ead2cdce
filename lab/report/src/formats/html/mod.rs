//! Renders runs and cases as HTML pages that open from disk: the result of each case, what happened
//! to its packets, and the evidence. Pages are made from documents, so that they can be made again
//! from the files of a run.
//!
//! A page makes no request. Its policy allows only its own style and script, by their hashes. All
//! text of users and programs is escaped by `maud`.

mod case;
mod packets;
mod page;
mod run;
mod writer;

pub(crate) use case::evidence;
pub(crate) use case::{CasePage, evidence::FileLink};
pub(crate) use page::{PAGE, Page};
pub(crate) use run::row::ShownRun;
pub use writer::HtmlWriter;

#[cfg(test)]
mod tests;
