//! Tests `svclab verify`. Programs and labs that cannot be compared are reported with the reason.
//! Steps are tested with the generated rules of two versions, because a machine may have no
//! kube-proxy.

use std::fs::{self, Permissions};
use std::future::pending;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::unistd::geteuid;
use serde_json::{Value, json};
use svclab_diagnostic::exit_code;
use svclab_experiment::verify::{
    PreparedPairs, Program, Side, Verification, prepare_pairs, verify,
};
use svclab_report::TerminalWidth;
use svclab_report::verify::render_text;
use svclab_runner::kernel::KernelChoice;
use svclab_runner::results::ErrorKind;
use svclab_runner::run::{RunControl, RunOptions, select_labs};
use svclab_test_support::block_on;
use svclab_test_support::programs::agent;
use tokio::sync::mpsc;

use crate::fake;
use crate::support::{LAB, assert_matches_schema, project, run, stderr, stdout, svclab, write_lab};

/// Compares a shell script as kube-proxy, with further arguments.
fn verify_script(script: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let (directory, path) = write_lab(LAB);
    let program = directory.path().join("kube-proxy");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a file");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("permissions");
    verify_program(&program, &path, arguments, directory.path())
}

fn verify_program(
    program: &Path,
    lab: &Path,
    extra_arguments: &[&str],
    home: &Path,
) -> (Option<i32>, String) {
    let (program, lab) = (program.display().to_string(), lab.display().to_string());
    let mut arguments = vec!["verify", "--kernel=host", "--kube-proxy", &program, &lab];
    arguments.extend(extra_arguments);
    let output = run(&arguments);
    let text = stdout(&output) + &stderr(&output);
    (
        output.status.code(),
        text.replace(&home.display().to_string(), "LABS"),
    )
}

#[test]
fn verify_missing_program_is_refused() {
    let (directory, path) = write_lab(LAB);
    let program = directory.path().join("none");
    let (code, text) = verify_program(&program, &path, &[], directory.path());
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn verify_other_program_is_refused() {
    let (code, text) = verify_script("echo 'kubectl 1'", &[]);
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn verify_program_exit_is_reported() {
    let script = "case $1 in --version) echo Kubernetes v1.30.5;; *) echo no; exit 3;; esac";
    let (code, text) = verify_script(script, &[]);
    assert_eq!(code, Some(1), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn verify_invalid_against_is_refused() {
    let (code, text) = verify_script("echo Kubernetes v1.30.5", &["--against", "kube-proxy"]);
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn verify_mode_without_case_exits_4() {
    let (code, text) = verify_script("echo Kubernetes v1.30.5", &["--proxy-mode", "ipvs"]);
    assert_eq!(code, Some(4), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn verify_mode_unsupported_by_version_exits_4() {
    let text = LAB.replacen("{version: v1.30,", "{version: v1.30, mode: nftables,", 1);
    assert_ne!(text, LAB);
    let (directory, path) = write_lab(text);
    let program = directory.path().join("kube-proxy");
    fs::write(&program, "#!/bin/sh\necho Kubernetes v1.20.2\n").expect("a file");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("permissions");
    let (code, text) = verify_program(&program, &path, &[], directory.path());
    assert_eq!(code, Some(4), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn verify_program_without_end_is_refused() {
    let (directory, path) = write_lab(fake::lab_without_rules());
    let program = directory.path().join("kube-proxy");
    for (script, wanted) in [
        ("sleep 1000", "--version did not exit within 10 s"),
        (
            "yes Kubernetes",
            "--version does not print a kube-proxy version",
        ),
    ] {
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a file");
        fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("permissions");
        let (code, text) = verify_program(&program, &path, &[], directory.path());
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn verify_refused_requests_are_reported_by_side() {
    let (directory, path) = write_lab(fake::lab_without_rules());
    let program = fake::write_fake_kube_proxy(directory.path(), fake::SYNCS);
    let (code, text) = verify_program(&program, &path, &[], directory.path());
    // The probe targets a pod, so missing rules do not change its result.
    assert_eq!(code, Some(0), "{text}");
    insta::with_settings!({filters => vec![(r"\d+\.\d\d s", "N s"), (r"in \d+ places", "in N places")]}, {
        insta::assert_snapshot!(text);
    });
    let (_, text) = verify_program(&program, &path, &["--format=json"], directory.path());
    let document: Value = serde_json::from_str(&text).expect("JSON");
    assert_matches_schema(&document, include_str!("../../schema/verification.v1.json"));
    let refused = document["new"]["refused"].as_array().map(Vec::len);
    assert_eq!(refused, Some(2), "{text}");
    assert_eq!(document["against"].get("refused"), None, "{text}");
}

/// Refused requests before the steps count once; those during a step count, too.
#[test]
fn verify_refused_requests_in_step_are_reported() {
    let probe = "{from: pod/default/client, to: \"pod/default/web-b:8080\"}";
    let steps = format!("{ADD_POD_STEP}      callNew: {probe}\n");
    let (directory, path) = write_lab(with_steps(&steps, "callNew", &fake::lab_without_rules()));
    let program = fake::write_fake_kube_proxy(directory.path(), fake::SYNCS_AFTER_STEP);
    let (code, text) = verify_program(&program, &path, &["--format=json"], directory.path());
    assert_eq!(code, Some(0), "{text}");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    // For each of two cases, one flow before the step and one after it.
    assert_eq!(document["flows"], 4, "{text}");
    assert_eq!(document["notCompared"], json!([]), "{text}");
    let refused = document["new"]["refused"].as_array().expect("a list");
    let requests: Vec<(&str, &Value)> = refused
        .iter()
        .map(|each| (each["request"].as_str().unwrap_or_default(), &each["times"]))
        .collect();
    let wanted = [
        (
            "GET /apis/x.example/v1/policies?limit=500&resourceVersion=0",
            &json!(4),
        ),
        ("PUT /api/v1/nodes/node-1", &json!(2)),
        ("GET /apis/x.example/v1/shards", &json!(2)),
    ];
    assert_eq!(requests, wanted, "{text}");
    assert_eq!(document["against"].get("refused"), None, "{text}");
}

/// Compares a case of `service-changes` with the rules of two versions.
fn compare_versions(case: &str, [against, new]: [&str; 2]) -> Verification {
    let labs = select_labs(&[case.to_owned()], &project().join("topologies")).expect("the lab");
    let side = |version: &str| Side::Rules(version.parse().expect("a version"));
    let (against, new) = (side(against), side(new));
    let found = prepare_pairs(&labs, &against, &new, &[], false);
    run_verify(found, &against, &new, agent())
}

/// Pairs the cases of a lab with the rules of one version on both sides.
fn pair_cases(lab: &Path, version: &str) -> PreparedPairs {
    let labs = select_labs(&[lab.display().to_string()], lab).expect("the lab");
    let side = Side::Rules(version.parse().expect("a version"));
    prepare_pairs(&labs, &side, &side, &[], false)
}

fn compare_lab(lab: &Path, version: &str, agent: PathBuf) -> Verification {
    let side = Side::Rules(version.parse().expect("a version"));
    run_verify(pair_cases(lab, version), &side, &side, agent)
}

fn run_verify(found: PreparedPairs, against: &Side, new: &Side, agent: PathBuf) -> Verification {
    let options = RunOptions {
        kernels: KernelChoice::Auto,
        agent: Some(agent),
        jobs: 1,
        agents: 1,
        keep: false,
        with_evidence: false,
        command: String::new(),
        shard: None,
        control: RunControl::default(),
        notice: None,
    };
    let (sender, _) = mpsc::unbounded_channel();
    block_on(verify(found, against, new, &options, &sender, pending()))
}

/// UDP flows that are open when their endpoint begins to terminate: v1.21 keeps their conntrack
/// entries, v1.24 deletes them.
#[test]
fn verify_udp_flow_moved_after_step_is_reported() {
    let case = "service-changes/version=v1.21,mode=iptables";
    let mut verification = compare_versions(case, ["v1.21", "v1.24"]);
    assert_eq!(verification.exit_code(), 1, "{verification:#?}");
    for side in [&verification.against, &verification.new] {
        assert_eq!(
            side.shift_times.map(|moving| moving.flows),
            Some(5),
            "{side:?}"
        );
    }
    // Removes values that differ between runs or machines.
    verification.against.shift_times = None;
    verification.new.shift_times = None;
    for changed in &mut verification.changed {
        assert!(changed.error_per_billion < 1_000, "{changed:?}");
        changed.error_per_billion = 0;
        changed.flow.kernel = "X".to_owned();
        for times in changed.against.iter_mut().chain(&mut changed.new) {
            assert!(times.connections > 1, "{times:?}");
            times.connections = 9;
        }
    }
    insta::assert_snapshot!(render_text(
        &verification,
        false,
        false,
        TerminalWidth::default()
    ));
}

/// Runs the lab in ipvs mode, where svclab's way of changing virtual servers would break
/// connections through them. Only flows before the first such step are compared.
#[test]
fn verify_ipvs_steps_compares_flows_before_them() {
    let lab = project().join("topologies/service-changes.yaml");
    let text = fs::read_to_string(lab).expect("the lab");
    let ipvs = text.replacen("mode: iptables, clusterCIDR", "mode: ipvs, clusterCIDR", 1);
    assert_ne!(ipvs, text);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("service-changes.yaml");
    fs::write(&path, ipvs).expect("a file");
    let case = format!("{}/version=v1.21,mode=iptables", path.display());
    let labs = select_labs(&[case], directory.path()).expect("the lab");
    let side = |version: &str| Side::Rules(version.parse().expect("a version"));
    let found = prepare_pairs(&labs, &side("v1.21"), &side("v1.24"), &[], false);
    let steps: Vec<usize> = found
        .pairs
        .iter()
        .flat_map(|pair| {
            [
                pair.against.plan.steps().count(),
                pair.new.plan.steps().count(),
            ]
        })
        .collect();
    // A step that adds a pod changes a virtual server, too.
    assert_eq!(steps, [0, 0]);
    assert_eq!(found.not_compared, []);
    let [failed] = found.failed.as_slice() else {
        panic!("{:#?}", found.failed);
    };
    assert_eq!(failed.error.kind, ErrorKind::Input);
    let message = "step `oneComes` changes virtual servers of IPVS in node-1";
    assert!(failed.error.message.starts_with(message), "{failed:?}");
}

/// A step that adds a pod, without its probes.
const ADD_POD_STEP: &str = "
  - name: oneComes
    change:
    - add:
        apiVersion: v1
        kind: Pod
        metadata: {name: web-b, namespace: default, labels: {app: web}}
        spec: {nodeName: node-1, containers: [{name: web, ports: [{containerPort: 8080}]}]}
        status: {podIP: 10.244.1.11}
    probes:
";

/// Returns the lab with these steps, and rows that accept any outcome of their probe.
fn with_steps(steps: &str, probe: &str, lab: &str) -> String {
    let text = lab.replacen("\n  axes:\n", &format!("\n  steps:{steps}  axes:\n"), 1);
    assert_ne!(text, lab);
    let whole = text.replace(
        "    call: {connected",
        &format!("    {probe}: any\n    call: {{connected"),
    );
    assert_ne!(whole, text);
    whole
}

/// Returns a lab with a step that adds a pod, and a step that changes the flags of kube-proxy.
fn lab_with_steps() -> String {
    const OTHER: &str = "      callBoth: {from: pod/default/client, to: \"service/default/web:80\"}
  - name: otherFlags
    change:
    - {patch: Lab, merge: {spec: {kubeProxy: {masqueradeAll: true}}}}
";
    with_steps(&format!("{ADD_POD_STEP}{OTHER}"), "callBoth", LAB)
}

/// Writes a program that prints the version of kube-proxy, and fails otherwise.
fn write_version_only_program(directory: &Path, version: &str) -> PathBuf {
    let program = directory.join("kube-proxy");
    let script = format!("[ $1 != --version ] || exec echo Kubernetes {version}\necho no\nexit 3");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a file");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("permissions");
    program
}

#[test]
fn verify_step_with_other_flags_is_refused() {
    let (directory, path) = write_lab(lab_with_steps());
    // This version calls no `conntrack`, which the machine may lack.
    let program = write_version_only_program(directory.path(), "v1.32.1");
    let (code, text) = verify_program(&program, &path, &[], directory.path());
    assert_eq!(code, Some(1), "{text}");
    insta::assert_snapshot!(text);
}

/// Up to v1.31, kube-proxy calls `conntrack` after a step. Flows before the step need no
/// `conntrack`.
#[test]
fn verify_steps_without_conntrack_exits_3() {
    let (directory, path) = write_lab(lab_with_steps());
    let program = write_version_only_program(directory.path(), "v1.31.4");
    // Hides the program in every directory of the path.
    let hide = "for each in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin; do \
                [ ! -f $each/conntrack ] || mount --bind /dev/null $each/conntrack; done; \
                exec \"$@\"";
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["sh", "-euc", hide, "sh"]);
    command.arg(svclab().get_program());
    command.args(["verify", "--kernel=host", "--kube-proxy"]);
    command.arg(&program).arg(&path).env("NO_COLOR", "1");
    let output = command.output().expect("unshare");
    let text = stdout(&output) + &stderr(&output);
    let code = output.status.code();
    assert_eq!(code, Some(exit_code::HOST_UNABLE.into()), "{text}");
    // The message may also list other requirements that this machine lacks.
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    for part in [
        "ERROR lab/policy=Cluster (new) from step oneComes on: ",
        "conntrack for the deletion of conntrack entries by kube-proxy in node-1",
        "`apt-get install conntrack`",
    ] {
        assert!(line.contains(part), "{part}: {text}");
    }
}

/// Returns a lab with a valid case and a case that is always invalid.
fn lab_with_invalid_case() -> String {
    let wrong = LAB.replace("internalTrafficPolicy: Local", "clusterIP: 10.244.1.9");
    assert_ne!(wrong, LAB);
    wrong
}

/// The fake kube-proxy writes no rules, so its flow changes, too: the error takes precedence.
#[test]
fn verify_case_that_cannot_be_prepared_is_an_error() {
    let (directory, path) = write_lab(lab_with_invalid_case());
    let program = fake::write_fake_kube_proxy(directory.path(), fake::SYNCS);
    let (code, text) = verify_program(&program, &path, &[], directory.path());
    assert_eq!(code, Some(exit_code::INVALID_INPUT.into()), "{text}");
    for part in ["CHANGED lab/policy=Cluster", "ERROR lab/policy=Local"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("not compared"), "{text}");
    let wrong = format!("{}/policy=Local", path.display());
    let (code, text) = verify_program(&program, Path::new(&wrong), &[], directory.path());
    assert_eq!(code, Some(exit_code::INVALID_INPUT.into()), "{text}");
    assert!(text.contains("not compared: lab/policy=Local"), "{text}");
}

/// Both sides behave alike in the valid case; the other case cannot be compared.
#[test]
fn verify_valid_and_invalid_case_exits_2() {
    let (_directory, path) = write_lab(lab_with_invalid_case());
    let verification = compare_lab(&path, "v1.30.5", agent());
    assert_eq!((verification.cases, verification.changed.len()), (1, 0));
    assert_eq!(verification.exit_code(), exit_code::INVALID_INPUT);
}

#[test]
fn verify_without_an_agent_is_no_success() {
    let (_directory, path) = write_lab(LAB);
    let verification = compare_lab(&path, "v1.30.5", "/bin/false".into());
    assert_eq!(verification.cases, 0);
    let [failed, second] = verification.failed.as_slice() else {
        panic!("{verification:#?}");
    };
    assert_eq!(failed.error, second.error);
    let code = failed.error.kind.exit_code();
    assert_ne!(code, exit_code::SUCCESS);
    assert_eq!(verification.exit_code(), code, "{failed:?}");
}

/// A panic during the comparison of a case is an error of that case.
#[test]
fn verify_case_that_panics_is_a_bug() {
    let (_directory, path) = write_lab(LAB);
    let mut found = pair_cases(&path, "v1.30.5");
    // Invalid value that no lab can contain: doubling it overflows.
    found.pairs[0].new.plan.stages[0].probes[0].max_wait = Duration::MAX;
    let version = Side::Rules("v1.30.5".parse().expect("a version"));
    let verification = run_verify(found, &version, &version, agent());
    let [failed] = verification.failed.as_slice() else {
        panic!("{verification:#?}");
    };
    assert_eq!(failed.error.kind, ErrorKind::Bug);
    assert_eq!(verification.exit_code(), exit_code::BUG);
}

/// Features that a version of kube-proxy lacks are not compared, which is no failure.
#[test]
fn verify_shipped_labs_do_not_fail_with_any_version() {
    let directory = tempfile::tempdir().expect("a directory");
    let topologies = project().join("topologies");
    let mut labs = select_labs(&[], &topologies).expect("the labs");
    labs.extend(select_labs(&[], &topologies.join("conformance")).expect("the labs"));
    for text in ["v1.20.2", "v1.30.5", "v1.36.0"] {
        let version = text.parse().expect("a version");
        let path = write_version_only_program(directory.path(), text);
        let new = Side::Program(Program { path, version });
        let found = prepare_pairs(&labs, &Side::Rules(version), &new, &[], false);
        assert_eq!(found.failed, [], "{text}");
        assert!(!found.pairs.is_empty() && !found.not_compared.is_empty());
    }
}
