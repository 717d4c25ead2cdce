//! Tests README.md and the book in `docs/src`: commands, shown outputs, links and generated
//! chapters.

mod commands;
mod customer_report;
mod generated;
mod links;
mod outputs;
mod quick;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::project;

/// A Markdown file.
struct Page {
    /// Path relative to the project.
    path: PathBuf,
    text: String,
}

impl Page {
    fn read(path: &str) -> Self {
        let text = fs::read_to_string(project().join(path));
        Self {
            path: path.into(),
            text: text.unwrap_or_else(|error| panic!("{path}: {error}")),
        }
    }

    /// Whether the text comes from data of the code.
    fn is_generated(&self) -> bool {
        self.text.contains(generated::NOTE)
    }

    /// Returns the fenced code blocks.
    fn blocks(&self) -> Vec<Block> {
        let mut found = Vec::new();
        let mut open: Option<Block> = None;
        for line in self.text.lines() {
            match (line.trim_start().strip_prefix("```"), &mut open) {
                (Some(_), Some(_)) => found.extend(open.take()),
                (Some(language), None) => {
                    open = Some(Block {
                        language: language.to_owned(),
                        text: String::new(),
                    });
                }
                (None, Some(block)) => block.text.extend([line, "\n"]),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: open code block", self.path.display());
        found
    }

    /// Returns the lines outside of fenced code blocks.
    fn prose(&self) -> Vec<&str> {
        let mut is_code = false;
        let lines = self.text.lines().filter(|line| {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            !is_code && !is_fence
        });
        lines.collect()
    }

    /// Returns the inline code outside of fenced code blocks.
    fn inline_code(&self) -> Vec<&str> {
        let lines = self.prose().into_iter();
        lines
            .flat_map(|line| line.split('`').skip(1).step_by(2))
            .collect()
    }
}

/// A fenced code block.
struct Block {
    language: String,
    text: String,
}

/// Returns README.md and all chapters of the book.
fn pages() -> Vec<Page> {
    let mut files = vec![project().join("README.md")];
    collect_markdown(&project().join("docs/src"), &mut files);
    files.sort();
    let relative = files.iter().map(|file| file.strip_prefix(project()));
    relative
        .map(|file| Page::read(&file.expect("a file of the project").to_string_lossy()))
        .collect()
}

/// Adds the Markdown files of a directory and its subdirectories.
fn collect_markdown(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect_markdown(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
}
