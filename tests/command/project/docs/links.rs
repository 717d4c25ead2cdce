//! Tests the links of the documentation: files and headings exist, and the table of contents lists
//! every chapter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::{Page, pages};
use crate::support::project;

const SUMMARY: &str = "docs/src/SUMMARY.md";

/// Returns the targets of links and pictures of a page, without inline code.
fn links(page: &Page) -> Vec<String> {
    let prose = page.prose().join("\n");
    let parts = prose.split('`').enumerate();
    let prose: String = parts
        .filter(|(index, _)| index % 2 == 0)
        .map(|(_, part)| part)
        .collect();
    let inline = prose.split("](").skip(1);
    let inline = inline.filter_map(|text| Some(text.split_once(')')?.0.to_owned()));
    let definitions = prose.lines().filter_map(|line| {
        let (_, target) = line.strip_prefix('[')?.split_once("]: ")?;
        Some(target.trim().to_owned())
    });
    inline.chain(definitions).collect()
}

/// Returns the anchors of a page's headings, as GitHub and mdBook derive them.
fn anchors(page: &Page) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for line in page.prose() {
        let Some(heading) = line.strip_prefix('#') else {
            continue;
        };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let anchor: String = heading
            .chars()
            .filter(|letter| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter))
            .map(|letter| if letter == ' ' { '-' } else { letter })
            .collect();
        let count = counts.entry(anchor.clone()).or_default();
        found.insert(match *count {
            0 => anchor,
            count => format!("{anchor}-{count}"),
        });
        *count += 1;
    }
    found
}

/// Returns a path without `.` and `..`.
fn resolve(directory: &Path, target: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for component in directory.join(target).components() {
        match component {
            Component::ParentDir => assert!(path.pop(), "{target} is outside of the project"),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// Returns what is wrong with a link of a page.
fn link_error(page: &Page, target: &str) -> Option<String> {
    if ["https://", "http://"]
        .iter()
        .any(|start| target.starts_with(start))
    {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => page.path.clone(),
        file => resolve(page.path.parent().expect("a directory"), file),
    };
    if !project().join(&path).exists() {
        return Some(format!("{} does not exist", path.display()));
    }
    if anchor.is_empty() {
        return None;
    }
    let other = Page::read(&path.to_string_lossy());
    let has_anchor = anchors(&other).contains(anchor);
    (!has_anchor).then(|| format!("{} has no heading `{anchor}`", path.display()))
}

#[test]
fn docs_links_lead_to_files_and_headings() {
    let mut pages = pages();
    pages.extend(["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(Page::read));
    let mut errors = Vec::new();
    let mut count = 0;
    for page in &pages {
        for target in links(page) {
            count += 1;
            if let Some(error) = link_error(page, &target) {
                errors.push(format!("{}: {target}: {error}", page.path.display()));
            }
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    println!("{count} links");
}

#[test]
fn docs_broken_links_are_found() {
    let page = Page {
        path: "docs/src/introduction.md".into(),
        text: "# Title, of `a-b`\n\n[a](no-such.md), [b](#title-of-a-b), [c](#title)\n\
               `[d](code.md)` ![e](../../README.md#no-such)\n\n```text\n[f](code.md)\n```\n\n\
               [g]: missing\n"
            .to_owned(),
    };
    let targets = links(&page);
    assert_eq!(
        targets,
        [
            "no-such.md",
            "#title-of-a-b",
            "#title",
            "../../README.md#no-such",
            "missing"
        ]
    );
    let errors: Vec<String> = targets
        .iter()
        .filter_map(|target| link_error(&page, target))
        .collect();
    // Anchors are those of the file.
    assert_eq!(errors.len(), 5, "{errors:?}");
    assert_eq!(anchors(&page), BTreeSet::from(["title-of-a-b".to_owned()]));
}

#[test]
fn docs_table_of_contents_lists_every_chapter() {
    let summary = Page::read(SUMMARY);
    let directory = summary.path.parent().expect("a directory");
    let mut listed: Vec<PathBuf> = links(&summary)
        .iter()
        .map(|target| resolve(directory, target))
        .collect();
    listed.sort();
    let chapters: Vec<PathBuf> = pages()
        .into_iter()
        .map(|page| page.path)
        .filter(|path| path.starts_with(directory) && *path != summary.path)
        .collect();
    assert_eq!(listed, chapters);
}

/// Files of the project that inline code names, such as `scripts/test`.
#[test]
fn docs_mentioned_files_exist() {
    let folders = ["ci/", "docs/", "lab/", "scripts/", "tests/", "topologies/"];
    for page in pages() {
        for code in page.inline_code() {
            let is_file = folders.iter().any(|folder| code.starts_with(folder));
            let name = code.split_whitespace().next().unwrap_or(code);
            assert!(
                !is_file || project().join(name).exists(),
                "{}: `{code}` does not exist",
                page.path.display()
            );
        }
    }
}
