//! Tests of labs whose objects are in other files. Snapshots contain the diagnostics.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::tests::example::EXAMPLE;
use crate::{FileAccess, Scenario};
use svclab_diagnostic::Rendering;
use svclab_diagnostic::source::Source;

/// Writes the example with its objects in another file. `list` is the value of `objects`.
fn write_lab(directory: &Path, list: &str) {
    let (lab, objects) = EXAMPLE
        .split_once("---\n")
        .expect("the example has objects");
    let lab = lab.replacen("spec:\n", &format!("spec:\n  objects: {list}\n"), 1);
    fs::write(directory.join("lab.yaml"), lab).expect("written");
    fs::write(directory.join("objects.yaml"), objects).expect("written");
}

/// Loads the lab of a directory, and returns its diagnostics with the paths relative to it.
fn load(directory: &Path, access: FileAccess) -> String {
    let lab = Source::read(&directory.join("lab.yaml")).expect("a lab");
    let (sources, diagnostics) = match Scenario::load_lab(lab, access) {
        Ok((scenario, warnings)) => (scenario.sources, warnings),
        Err(invalid) => (invalid.sources, invalid.diagnostics),
    };
    let rendered: Vec<String> = diagnostics
        .iter()
        .map(|diagnostic| diagnostic.render(&sources, Rendering::default()))
        .collect();
    let root = format!("{}/", directory.display());
    rendered.join("\n\n").replace(&root, "")
}

/// Returns the diagnostics of the example with this list of files.
fn diagnostics_of(list: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    write_lab(directory.path(), list);
    load(directory.path(), FileAccess::LabDirectory)
}

#[test]
fn objects_in_other_files_are_those_of_the_lab() {
    let directory = tempfile::tempdir().expect("a directory");
    write_lab(directory.path(), "[objects.yaml]");
    let lab = Source::read(&directory.path().join("lab.yaml")).expect("a lab");
    let (loaded, warnings) = Scenario::load_lab(lab, FileAccess::LabDirectory).expect("a lab");
    assert_eq!(warnings, []);
    let whole = Source::from_text("example.yaml", EXAMPLE);
    let (whole, _) = Scenario::load(&whole.into()).expect("a lab");
    assert_eq!(loaded.cases().len(), whole.cases().len());
    let names = |scenario: &Scenario| -> Vec<String> {
        let objects = &scenario.cases()[0].objects;
        let pods = objects.pods.iter().map(|pod| pod.name.clone());
        let slices = objects
            .endpoint_slices
            .iter()
            .map(|slice| slice.name.clone());
        pods.chain(slices).collect()
    };
    assert_eq!(names(&loaded), names(&whole));
    let files: Vec<String> = loaded
        .sources
        .iter()
        .map(|(_, source)| {
            source
                .name()
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    assert_eq!(files, ["lab.yaml", "objects.yaml"]);
}

#[test]
fn objects_as_json_and_in_several_files_are_read() {
    let directory = tempfile::tempdir().expect("a directory");
    write_lab(
        directory.path(),
        "[objects.yaml, sub/more.json, ./sub/../none.yaml]",
    );
    fs::create_dir(directory.path().join("sub")).expect("created");
    let node = r#"{"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": "node-3"}, "status": {"addresses": [{"type": "InternalIP", "address": "172.18.3.1"}]}}]}"#;
    fs::write(directory.path().join("sub/more.json"), node).expect("written");
    let cluster_cidr = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n";
    fs::write(directory.path().join("none.yaml"), cluster_cidr).expect("written");
    assert_eq!(load(directory.path(), FileAccess::LabDirectory), "");
}

#[test]
fn object_file_that_cannot_be_read_is_refused() {
    insta::assert_snapshot!(diagnostics_of(
        "[objects.yaml, missing.yaml, ., \"-\", ../x.yaml, /etc/hostname, objects.yaml, ./objects.yaml]"
    ));
}

#[test]
fn object_file_with_an_error_shows_its_line() {
    let directory = tempfile::tempdir().expect("a directory");
    write_lab(directory.path(), "[objects.yaml]");
    let file = directory.path().join("objects.yaml");
    let text = fs::read_to_string(&file).expect("read");
    fs::write(&file, text.replacen("port: 443", "port: many", 1)).expect("written");
    insta::assert_snapshot!(load(directory.path(), FileAccess::LabDirectory));
}

#[test]
fn object_in_two_files_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    write_lab(directory.path(), "[objects.yaml, again.yaml]");
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n";
    fs::write(directory.path().join("again.yaml"), node).expect("written");
    insta::assert_snapshot!(load(directory.path(), FileAccess::LabDirectory));
}

#[test]
fn file_without_objects_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    write_lab(
        directory.path(),
        "[objects.yaml, comments.yaml, empty.yaml, lab.yaml]",
    );
    fs::write(directory.path().join("comments.yaml"), "# nothing\n---\n").expect("written");
    fs::write(directory.path().join("empty.yaml"), "\n").expect("written");
    insta::assert_snapshot!(load(directory.path(), FileAccess::LabDirectory));
    write_lab(directory.path(), "[objects.yaml, lab.yaml]");
    let twice = load(directory.path(), FileAccess::LabDirectory);
    assert!(
        twice.starts_with("error: more than one lab document"),
        "{twice}"
    );
}

#[test]
fn list_of_files_of_the_wrong_type_is_refused() {
    insta::assert_snapshot!(format!(
        "{}\n\n{}",
        diagnostics_of("objects.yaml"),
        diagnostics_of("[{}]")
    ));
}

#[test]
fn patch_of_the_list_of_files_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    write_lab(directory.path(), "[objects.yaml]");
    let file = directory.path().join("lab.yaml");
    let text = fs::read_to_string(&file).expect("read");
    let part = "{nodes: {node-1: {sysctls: {net.ipv4.conf.all.rp_filter: 1}}}}";
    assert!(text.contains(part));
    fs::write(&file, text.replacen(part, "{objects: [other.yaml]}", 1)).expect("written");
    let refused = load(directory.path(), FileAccess::LabDirectory);
    assert!(
        refused.starts_with("error: a patch cannot change `objects` of the lab"),
        "{refused}"
    );
}

#[test]
fn file_outside_the_directory_needs_permission() {
    let root = tempfile::tempdir().expect("a directory");
    let directory = root.path().join("labs");
    fs::create_dir(&directory).expect("created");
    write_lab(&directory, "[../objects.yaml]");
    fs::rename(
        directory.join("objects.yaml"),
        root.path().join("objects.yaml"),
    )
    .expect("moved");
    assert!(load(&directory, FileAccess::LabDirectory).contains("--allow-outside"));
    assert_eq!(load(&directory, FileAccess::Anywhere), "");
    // A link inside the directory leads outside, too.
    write_lab(&directory, "[link.yaml]");
    symlink(
        root.path().join("objects.yaml"),
        directory.join("link.yaml"),
    )
    .expect("linked");
    assert!(load(&directory, FileAccess::LabDirectory).contains("--allow-outside"));
}

#[test]
fn text_behind_a_link_is_not_shown() {
    let directory = tempfile::tempdir().expect("a directory");
    write_lab(directory.path(), "[link.yaml]");
    fs::write(directory.path().join("objects.yaml"), "secret: word\n").expect("written");
    symlink("objects.yaml", directory.path().join("link.yaml")).expect("linked");
    let seen = load(directory.path(), FileAccess::LabDirectory);
    assert!(
        !seen.contains("secret") && seen.contains("symbolic link"),
        "{seen}"
    );
}

#[test]
fn embedded_lab_with_files_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    write_lab(directory.path(), "[objects.yaml]");
    insta::assert_snapshot!(load(directory.path(), FileAccess::None));
}

#[test]
fn lab_that_is_loaded_without_its_files_is_refused() {
    let (lab, _) = EXAMPLE
        .split_once("---\n")
        .expect("the example has objects");
    let lab = lab.replacen("spec:\n", "spec:\n  objects: [objects.yaml]\n", 1);
    let error = Scenario::load(&Source::from_text("lab.yaml", lab).into()).expect_err("refused");
    assert!(
        error
            .iter()
            .any(|e| e.message == "the files of objects are not loaded with this lab")
    );
}
