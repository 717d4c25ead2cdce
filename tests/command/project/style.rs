//! Tests `scripts/check-style` on directories with and without violations.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{project, stderr, stdout};

/// A banned word.
const BANNED: &str = "nought";

const LIST: &str = "scripts/check-style.allow";

/// Text that the script prints to stderr for a directory without history.
const NO_HISTORY: &str = "not checked: commit titles (no history)\n";

const CLEAN: &str = "\
//! Renders a list.

/// Returns the number of items.
///
/// So far, a second line is not the start.
pub fn count_items() -> usize {
    0
}

#[test]
fn count_items_empty_list_returns_zero() {}
";

fn write(directory: &Path, name: &str, text: &str) {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, text).expect("the file can be written");
}

fn check(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(project().join("scripts/check-style"))
        .args(arguments)
        .arg(directory)
        .output()
        .expect("the script starts")
}

/// Asserts the exit code and the printed lines.
fn assert_checked(directory: &Path, code: i32, lines: &[String]) {
    let output = check(directory, &[]);
    assert_eq!(stderr(&output), NO_HISTORY);
    let printed = stdout(&output);
    assert_eq!(printed.lines().collect::<Vec<_>>(), lines);
    assert_eq!(output.status.code(), Some(code));
}

/// Returns a directory with violations of each rule for files, and the lines that report them.
fn directory_with_violations() -> (tempfile::TempDir, Vec<String>) {
    let directory = tempfile::tempdir().expect("a directory");
    let rust = format!(
        "//! How to count.\n\n\
         /// Returns a tick: '\"', \"\\\"\" or r#\"\"\"#.\n\
         pub fn one<'a>(word: &'a str) -> [char; 2] {{\n\
         \x20   // The result is {BANNED}, as {{{BANNED}}}.\n\
         \x20   print!(\"{{{BANNED}}} is let \\\n\
         \x20       off, fn one() // no comment\");\n\
         \x20   ['\"', '\\'']\n\
         }}\n\n\
         #[test]\n\
         #[should_panic]\n\
         fn the_test() {{}}\n\n\
         #[tokio::test(flavor = \"current_thread\")]\n\
         async fn {}() {{}}\n",
        "x".repeat(61)
    );
    let words = |count| vec!["word"; count].join(" ");
    let readme = format!(
        "# Title\n\n\
         A {BANNED} in a text. {words}\n\
         the end.\n\n\
         - {item} `a b. c d` [a link](x y z).\n\n\
         ```sh\n{fence}\n```\n\n\
         | {cell} | {cell}. |\n",
        words = words(29),
        item = words(27),
        fence = words(40),
        cell = words(30),
    );
    write(directory.path(), "src/lib.rs", &rust);
    write(directory.path(), "README.md", &readme);
    write(directory.path(), "docs/a/b.md", &words(31));
    write(directory.path(), "notes.md", &words(31));
    let yaml = format!("says: {BANNED}#{BANNED} # {BANNED}\n");
    write(directory.path(), "lab.yaml", &yaml);
    write(
        directory.path(),
        "ci/run",
        "#!/usr/bin/env bash\n# what became\n# of it\n",
    );
    write(directory.path(), "data", BANNED);
    let snapshot = format!("---\nexpression: {BANNED}\n---\n{BANNED} left\n");
    write(directory.path(), "a.snap", &snapshot);
    write(directory.path(), "tests/recorded/a/b.md", BANNED);
    write(directory.path(), "tests/recorded/a/README.md", BANNED);
    let lines = vec![
        format!("README.md:3: sentence: 31 words: {} the end.", words(29)),
        format!("README.md:3: word: A {BANNED} in a text. {}", words(29)),
        format!("a.snap:4: word: {BANNED} left"),
        "ci/run:2: word: # what became".to_owned(),
        format!("docs/a/b.md:1: sentence: 31 words: {}", words(31)),
        format!("lab.yaml:1: word: says: {BANNED}#{BANNED} # {BANNED}"),
        "src/lib.rs:1: doc: //! How to count.".to_owned(),
        "src/lib.rs:4: function: one".to_owned(),
        format!("src/lib.rs:5: word: // The result is {BANNED}, as {{{BANNED}}}."),
        format!("src/lib.rs:6: word: print!(\"{{{BANNED}}} is let \\"),
        "src/lib.rs:13: test: the_test".to_owned(),
        format!("src/lib.rs:16: test: {}", "x".repeat(61)),
        format!("tests/recorded/a/README.md:1: word: {BANNED}"),
    ];
    (directory, lines)
}

#[test]
fn style_directory_without_violations_passes() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), "src/lib.rs", CLEAN);
    write(directory.path(), "README.md", "# Title\n\nA text.\n");
    assert_checked(directory.path(), 0, &[]);
}

#[test]
fn style_violations_of_each_rule_are_reported() {
    let (directory, lines) = directory_with_violations();
    assert_checked(directory.path(), 1, &lines);
}

#[test]
fn style_exceptions_can_only_decrease() {
    let (directory, lines) = directory_with_violations();
    let entries: Vec<String> = lines
        .iter()
        .map(|line| {
            let (file, rest) = line.split_once(':').expect("a file");
            let (_, rest) = rest.split_once(": ").expect("a line");
            let (rule, text) = rest.split_once(": ").expect("a rule");
            format!("{rule}\t{file}\t{text}\n")
        })
        .collect();
    let list = |maximum: usize| format!("# maximum: {maximum}\n{}", entries.concat());
    write(directory.path(), LIST, &list(entries.len()));
    assert_checked(directory.path(), 0, &[]);

    // Two violations of the same text need two exceptions.
    write(directory.path(), "src/lib.rs", CLEAN);
    write(directory.path(), "a.rs", "fn one() {}\nfn one() {}\n");
    let stale = lines.iter().zip(&entries).enumerate();
    let stale = stale.filter(|(_, (line, _))| line.starts_with("src/"));
    let mut expected: Vec<String> = ["a.rs:1: function: one", "a.rs:2: function: one"]
        .map(str::to_owned)
        .to_vec();
    expected.extend(stale.map(|(index, (_, entry))| {
        let entry = entry.trim_end();
        let number = index + 2;
        format!("{LIST}:{number}: allow: remove the line, it allows nothing: {entry}")
    }));
    assert_checked(directory.path(), 1, &expected);

    let output = check(directory.path(), &["--shrink"]);
    assert_eq!(stdout(&output).lines().collect::<Vec<_>>(), expected[..2]);
    let shrunk = fs::read_to_string(directory.path().join(LIST)).expect("a list");
    let maximum = entries.len() + 2 - expected.len();
    assert!(
        shrunk.starts_with(&format!("# maximum: {maximum}\n")),
        "{shrunk}"
    );

    let grown = format!("{shrunk}function\ta.rs\tone\n");
    write(directory.path(), LIST, &grown);
    let count = maximum + 1;
    let line =
        format!("{LIST}:1: allow: {count} exceptions, maximum {maximum}: the list may only shrink");
    assert_checked(directory.path(), 1, &[expected[1].clone(), line]);
}

#[test]
fn style_titles_since_start_are_checked() {
    let directory = tempfile::tempdir().expect("a directory");
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(["-c", "user.name=test", "-c", "user.email=test@example.com"])
            .args(arguments)
            .current_dir(directory.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .expect("git is installed");
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output).trim().to_owned()
    };
    git(&["init", "--quiet"]);
    let commit = |title: &str| git(&["commit", "--quiet", "--allow-empty", "-m", title]);
    commit("Start");
    let start = git(&["rev-parse", "HEAD"]);
    let header = format!("# maximum: 0\n# titles since: {start}\n");
    write(directory.path(), LIST, &header);
    commit("tests, readme: add an example");
    let output = check(directory.path(), &[]);
    assert_eq!(stdout(&output) + &stderr(&output), "");

    commit("An example");
    let id = git(&["rev-parse", "--short=12", "HEAD"]);
    let output = check(directory.path(), &[]);
    assert_eq!(
        stdout(&output),
        format!("commits:{id}: title: An example\n")
    );
    assert_eq!(output.status.code(), Some(1));

    // A shallow clone does not have the start.
    let clone = directory.path().join("clone");
    let url = format!("file://{}", directory.path().display());
    git(&["clone", "--quiet", "--depth=1", &url, "clone"]);
    write(&clone, LIST, &header);
    assert_checked(&clone, 0, &[]);
}

#[test]
fn style_wrong_arguments_are_refused() {
    let run = |argument: &str| check(Path::new("/"), &[argument]);
    assert_eq!(run("--no-such-option").status.code(), Some(2));
    assert_eq!(run("/no-such-directory").status.code(), Some(2));
    let help = run("--help");
    assert_eq!(help.status.code(), Some(0));
    assert!(stdout(&help).contains("Usage: scripts/check-style"));
}
