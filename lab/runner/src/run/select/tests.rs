//! Tests of the selection.

use std::path::PathBuf;

use super::*;

fn topologies() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../topologies")
}

fn select_names(names: &[&str]) -> Vec<(String, usize)> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let labs = select_labs(&names, &topologies()).expect("the labs can be read");
    labs.into_iter()
        .map(|lab| (lab.cli_name, lab.cases.len()))
        .collect()
}

#[test]
fn rerun_name_leading_dash_gets_path_prefix() {
    for named in ["-x.yaml", "other"] {
        assert_eq!(rerun_name(named, "-x.yaml"), "./-x.yaml");
    }
}

#[test]
fn select_directory_returns_its_labs() {
    let selected = select_names(&["conformance"]);
    let names: Vec<&str> = selected.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "conformance/cluster-ip",
            "conformance/dual-stack",
            "conformance/external-ip",
            "conformance/load-balancer",
            "conformance/node-port",
            "conformance/security-group",
            "conformance/session-affinity"
        ]
    );
    // The path of the directory selects the same labs. A lab that is named twice runs once.
    let path = topologies().join("conformance").display().to_string();
    assert_eq!(select_names(&[&path]), selected);
    assert_eq!(
        select_names(&["conformance", "conformance/node-port/mode=ipvs"]),
        selected
    );
}

/// A file of objects in a directory of labs is not a lab, unless the user names it.
#[test]
fn select_directory_skips_files_of_objects() {
    let directory = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(topologies().join("conformance/node-port.yaml")).unwrap();
    let (lab, objects) = text.split_once("\n---\n").unwrap();
    let lab = lab.replacen("\nspec:\n", "\nspec:\n  objects: [objects.yaml]\n", 1);
    fs::write(directory.path().join("lab.yaml"), lab).unwrap();
    fs::write(directory.path().join("objects.yaml"), objects).unwrap();
    fs::write(directory.path().join("other.yaml"), objects).unwrap();
    let select = |names: &[PathBuf]| {
        let names: Vec<String> = names
            .iter()
            .map(|name| name.display().to_string())
            .collect();
        let labs = select_labs_each(&names, directory.path())
            .unwrap()
            .into_iter();
        let name = |lab: LabResult| match lab {
            Ok(lab) => lab.cli_name,
            Err(invalid) => format!("invalid: {}", invalid.cli_name),
        };
        labs.map(name).collect::<Vec<String>>()
    };
    assert_eq!(select(&[]), ["lab", "invalid: other"]);
    assert_eq!(select(&["*".into()]), ["lab", "invalid: other"]);
    let both = ["lab.yaml", "objects.yaml"].map(|name| directory.path().join(name));
    let selected = select(&both);
    assert!(selected[1].starts_with("invalid: "), "{selected:?}");
}

#[test]
fn lab_in_directory_name_contains_directory() {
    let ipvs = select_names(&["conformance/external-ip/mode=ipvs"]);
    assert_eq!(ipvs, [("conformance/external-ip".to_owned(), 2)]);
}

#[test]
fn pattern_selects_labs_values_and_cases() {
    let all = select_names(&["clb-hairpin"])[0].1;
    let of = |count: usize| vec![("clb-hairpin".to_owned(), count)];
    let cases = |name: &str| select_names(&[name]);
    assert_eq!(cases("clb-hairpin/*"), of(all));
    assert_eq!(cases("clb-*"), of(all));
    assert_eq!(
        cases("clb-hairpin/*rpFilter=1*"),
        cases("clb-hairpin/rpFilter=1")
    );
    assert_eq!(cases("clb-*/rpFilter=?"), of(all));
    let some = cases("clb-hairpin/rpFilter=1")[0].1;
    assert!((1..all).contains(&some), "{some} of {all}");
    assert_eq!(cases("conformance/*"), cases("conformance"));
    // Labs without the value are skipped.
    assert_eq!(cases("c*/rpFilter=1")[1..], of(some));
    let ipvs = cases("conformance/*/mode=ipvs");
    assert!(ipvs.len() < cases("conformance").len(), "{ipvs:?}");
}

#[test]
fn pattern_without_match_is_an_error() {
    let errors = [
        "clb-hairpin/*rpFilter=9*",
        "clb-hairpin/rpFilter=9*",
        "nothing-*",
        "*/none=1",
    ]
    .map(|name| {
        let error = select_labs(&[name.to_owned()], &topologies()).expect_err("no match");
        let directory = topologies().display().to_string();
        error.to_string().replace(&directory, "DIRECTORY")
    });
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn find_lab_case_that_ends_like_a_file_is_found() {
    let directory = tempfile::tempdir().expect("the directory is created");
    let lab = directory.path().join("lab.yaml");
    std::fs::write(&lab, "").expect("the lab is written");
    let name = format!("{}/a=x.yaml", lab.display());
    let found = files::find_lab(&name, directory.path().into()).expect("the lab is found");
    assert_eq!(found, (LabFile::Path(lab), Some("a=x.yaml".to_owned())));
}

#[test]
fn select_empty_directory_returns_error() {
    let empty = tempfile::tempdir().expect("the directory is created");
    let name = empty.path().display().to_string();
    let error = select_labs(std::slice::from_ref(&name), &topologies())
        .expect_err("the directory has no labs");
    let message = error.to_string().replace(&name, "DIRECTORY");
    insta::assert_snapshot!(message, @"there is no lab in DIRECTORY; name a file, or the directory with --topologies");
}

#[test]
fn select_directory_unreadable_labs_are_invalid() {
    let folder = tempfile::tempdir().expect("the directory is created");
    let path_of = |name: &str| folder.path().join(name);
    let good = topologies().join("clb-hairpin.yaml");
    std::fs::copy(good, path_of("clb-hairpin.yaml")).expect("the lab is copied");
    std::os::unix::fs::symlink("none", path_of("dangling.yaml")).expect("the link is created");
    std::os::unix::fs::symlink("loop.yml", path_of("loop.yml")).expect("the link is created");
    nix::unistd::mkfifo(&path_of("pipe.yaml"), nix::sys::stat::Mode::S_IRWXU)
        .expect("the pipe is created");
    std::fs::create_dir(path_of("directory.yaml")).expect("the directory is created");
    std::fs::write(path_of("notes.txt"), "none").expect("the file is written");
    let name = folder.path().display().to_string();
    let selected = select_labs_each(std::slice::from_ref(&name), &topologies())
        .expect("the directory can be read");
    let lines = selected.iter().map(|lab| match lab {
        Ok(lab) => format!("read: {}", lab.scenario.name()),
        Err(wrong) => wrong.error.message.replace(&name, "DIRECTORY"),
    });
    let lines: Vec<String> = lines.collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    read: clb-hairpin
    cannot read DIRECTORY/dangling.yaml: no such file
    cannot read DIRECTORY/loop.yml: Too many levels of symbolic links (os error 40)
    cannot read DIRECTORY/pipe.yaml: not a regular file but a named pipe
    ");
}

/// Checks that the labs contain every flow of kube-proxy's tests, in each variant.
#[test]
fn conformance_labs_cover_every_cited_test_flow() {
    let names = ["conformance".to_owned()];
    let labs = select_labs(&names, &topologies()).expect("the labs can be read");
    let facts = || {
        let specs = labs.iter().map(|lab| &lab.scenario.lab.spec);
        specs.flat_map(|spec| spec.facts.values())
    };
    for (test, flows) in [
        // 30 flows, with and without a cluster CIDR and --masquerade-all.
        ("TestInternalExternalMasquerade", 4 * 30),
        ("TestClusterIPGeneral", 10),
        ("TestLoadBalancer", 13),
        // 3 flows, and 1 to a second address; with one and several networks, for both families.
        ("TestNodePorts", 2 * 2 * 4),
        ("TestExternalTrafficPolicyLocal", 7),
        ("TestExternalTrafficPolicyCluster", 7),
        // 4 flows, and the same 4 after the endpoints are removed.
        ("TestInternalTrafficPolicy", 2 * 4),
    ] {
        let of_test = facts().filter(|fact| fact.test.split('/').next() == Some(test));
        assert_eq!(of_test.count(), flows, "{test}");
    }
}
