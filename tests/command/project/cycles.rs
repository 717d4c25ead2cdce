//! Tests `scripts/check-cycles` on crates with and without import cycles.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{project, stderr, stdout};

fn check(argument: &Path) -> Output {
    Command::new(project().join("scripts/check-cycles"))
        .arg(argument)
        .output()
        .expect("the script starts")
}

/// Asserts the printed lines for a crate with these files in `lab/a/src`.
fn assert_checked(files: &[(&str, &str)], lines: &[&str]) {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        let path = directory.path().join("lab/a/src").join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, text).expect("the file can be written");
    }
    let output = check(directory.path());
    assert_eq!(stderr(&output), "");
    let printed = stdout(&output);
    assert_eq!(printed.lines().collect::<Vec<_>>(), lines);
    assert_eq!(output.status.code(), Some(i32::from(!lines.is_empty())));
}

const LIB: (&str, &str) = ("lib.rs", "mod x;\nmod y;\n");

#[test]
fn cycles_tree_of_modules_passes() {
    assert_checked(
        &[
            LIB,
            // A module and the modules inside it can import each other.
            (
                "x.rs",
                "use crate::y::{Y, z::Z};\n\nmod inside;\n\npub struct X;\n",
            ),
            ("x/inside.rs", "use super::X;\nuse crate::y::Y;\n"),
            (
                "y/mod.rs",
                "pub mod z;\n\npub use z::Z;\n\npub struct Y(Z);\n",
            ),
            ("y/z.rs", "// crate::x::X\npub struct Z; // crate::x::X\n"),
        ],
        &[],
    );
}

#[test]
fn cycles_between_folders_are_reported_with_places() {
    assert_checked(
        &[
            LIB,
            (
                "x/mod.rs",
                "mod inside;\n\npub struct X;\n\nfn f() -> crate::y::Y {\n    crate::y::Y\n}\n",
            ),
            (
                "x/inside.rs",
                "use std::{\n    fmt,\n    io as input,\n};\n\nuse super::super::{\n    X as Other,\n    y::{self, Y},\n};\n",
            ),
            (
                "y.rs",
                "#[serde(with = \"crate::x::inside\")]\npub struct Y;\n",
            ),
        ],
        &[
            "lab/a/src/x/inside.rs:6: lab/a::x imports y: super::super::y",
            "lab/a/src/y.rs:1: lab/a::y imports x: crate::x::inside",
        ],
    );
}

#[test]
fn cycles_through_reexports_are_reported() {
    assert_checked(
        &[
            (
                "lib.rs",
                "mod x;\nmod y;\nmod z;\n\npub use y::Y;\npub use z::*;\n",
            ),
            ("x.rs", "use crate::Y;\nuse crate::Z;\n\npub struct X;\n"),
            ("y.rs", "use crate::x;\n\npub struct Y(x::X);\n"),
            ("z.rs", "use crate::x::X;\n\npub(crate) struct Z;\n"),
        ],
        &[
            "lab/a/src/x.rs:1: lab/a::x imports y: crate::Y",
            "lab/a/src/x.rs:2: lab/a::x imports z: crate::Z",
            "lab/a/src/y.rs:1: lab/a::y imports x: crate::x",
            "lab/a/src/z.rs:1: lab/a::z imports x: crate::x::X",
        ],
    );
}

#[test]
fn cycles_longer_than_two_modules_are_reported() {
    let files = [
        ("lib.rs", "mod k;\n"),
        ("k/mod.rs", "mod x;\nmod y;\nmod z;\nmod w;\n"),
        ("k/x.rs", "fn f() {\n    super::y::f();\n}\n"),
        ("k/y.rs", "use super::z;\n\nfn f() {\n    z::f();\n}\n"),
        ("k/z.rs", "use crate::k;\n\nfn f() {\n    k::x::f();\n}\n"),
        // Imports a module of the cycle, but is not part of the cycle.
        ("k/w.rs", "use super::x;\n"),
    ];
    assert_checked(
        &files,
        &[
            "lab/a/src/k/x.rs:2: lab/a::k::x imports y: super::y::f",
            "lab/a/src/k/y.rs:1: lab/a::k::y imports z: super::z",
            "lab/a/src/k/z.rs:4: lab/a::k::z imports x: k::x::f",
        ],
    );
}

#[test]
fn cycles_of_tests_are_not_reported() {
    assert_checked(
        &[
            LIB,
            (
                "x.rs",
                "use crate::y::Y;\n\n#[cfg(test)]\nmod checks;\n\n#[cfg(test)]\nmod tests {\n    use crate::y::Y;\n}\n",
            ),
            ("x/checks.rs", "use crate::y::Y;\n"),
            (
                "y.rs",
                "#[cfg(test)]\nuse crate::{\n    x::X,\n};\n\n#[cfg(test)]\nmod tests;\n\npub struct Y;\n",
            ),
            ("y/tests.rs", "use crate::x::X;\n"),
        ],
        &[],
    );
}

#[test]
fn cycles_wrong_arguments_are_refused() {
    let missing = check(Path::new("/no-such-directory"));
    assert_eq!(missing.status.code(), Some(2));
    let help = check(Path::new("--help"));
    assert_eq!(help.status.code(), Some(0));
    assert!(stdout(&help).contains("Usage: scripts/check-cycles"));
}
