//! Tests programs that cannot run as kube-proxy: the error names the program and the problem. The
//! error also lists the API requests of a [`fake`] kube-proxy that the API server refused.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use svclab_apiserver::{Resource, Store};
use svclab_model::plan::{MaxWait, Plan};
use svclab_runner::kernel::Host;
use svclab_runner::results::ErrorKind;
use svclab_runner::run::{PrepareOptions, prepare, select_labs, to_run_error};
use svclab_test_support::block_on;
use svclab_test_support::evidence::read_case;
use svclab_test_support::programs::agent;

use crate::fake;
use crate::support::{LAB, assert_matches_schema, run, stderr, stdout, write_lab};

/// Returns the header of a 64-bit little-endian ELF program for a processor.
fn program_for(machine: u8) -> Vec<u8> {
    let mut head = b"\x7fELF\x02\x01\x01".to_vec();
    head.resize(64, 0);
    head[16] = 2;
    head[18] = machine;
    head
}

/// Runs a lab whose kube-proxy is a file with these bytes. Returns the exit code and the output.
fn run_with_binary(bytes: &[u8], permissions: u32, more: &str) -> (Option<i32>, String) {
    let text = LAB.replacen(
        "kubeProxy: {version",
        &format!("kubeProxy: {{binary: bin/proxy, {more}version"),
        1,
    );
    assert_ne!(text, LAB);
    let (directory, path) = write_lab(text);
    let bin = directory.path().join("bin");
    fs::create_dir(&bin).expect("a directory");
    let binary = bin.join("proxy");
    fs::write(&binary, bytes).expect("a file");
    fs::set_permissions(&binary, Permissions::from_mode(permissions)).expect("permissions");
    let case = format!("{}/policy=Local", path.display());
    let output = run(&["run", "--kernel=host", &case]);
    render_output(&output, directory.path())
}

/// Runs a lab with a [`fake`] kube-proxy. Returns the output of `svclab run`, raw and without
/// varying parts.
fn run_with_fake(ending: &str) -> (Output, String) {
    let (directory, path) = write_lab(fake::lab_without_rules());
    let program = fake::write_fake_kube_proxy(directory.path(), ending)
        .display()
        .to_string();
    let case = format!("{}/policy=Local", path.display());
    let output = run(&["run", "--kernel=host", "--kube-proxy", &program, &case]);
    let (_, text) = render_output(&output, directory.path());
    (output, text)
}

fn render_output(output: &Output, directory: &Path) -> (Option<i32>, String) {
    let text = stdout(output) + &stderr(output);
    let text = text.replace(&directory.display().to_string(), "LABS");
    // Removes the times and kernel releases.
    let lines = text.lines().filter(|line| !line.contains(" passed, "));
    let lines: Vec<&str> = lines
        .map(|line| line.split("  (").next().unwrap_or(line))
        .collect();
    (output.status.code(), lines.join("\n"))
}

#[test]
fn binary_not_executable_is_refused() {
    let (code, text) = run_with_binary(&program_for(62), 0o644, "");
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn binary_for_other_processor_is_refused() {
    let foreign = if cfg!(target_arch = "aarch64") {
        62
    } else {
        183
    };
    let (code, text) = run_with_binary(&program_for(foreign), 0o755, "");
    assert_eq!(code, Some(2), "{text}");
    insta::with_settings!({filters => vec![("x86_64|aarch64", "ARCHITECTURE")]}, {
        insta::assert_snapshot!(text);
    });
}

#[test]
fn binary_not_a_program_is_refused() {
    let (code, text) = run_with_binary(b"kube-proxy\n", 0o755, "");
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

/// Returns the header of a program for this processor, with its full size in a program header.
fn program_with_header(size: u64, kind: u8) -> Vec<u8> {
    let mut program = program_for(if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    });
    program[32] = 64;
    program[56] = 1;
    program.resize(64 + 56, 0);
    program[64] = kind;
    program[72] = 120;
    program[96..104].copy_from_slice(&(size - 120).to_le_bytes());
    program
}

#[test]
fn binary_truncated_elf_is_refused() {
    let (code, text) = run_with_binary(&program_with_header(36_831_232, 1), 0o755, "");
    assert_eq!(code, Some(2), "{text}");
    let wanted = "bin/proxy is truncated: it has 120 of 36831232 bytes";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn binary_without_its_loader_is_refused() {
    let mut program = program_with_header(120 + 17, 3);
    program.extend_from_slice(b"/nowhere/ld.so.2\0");
    for program in [program, b"#! /nowhere/ld.so.2 -x\n".to_vec()] {
        let (code, text) = run_with_binary(&program, 0o755, "");
        assert_eq!(code, Some(2), "{text}");
        let wanted = ": it needs /nowhere/ld.so.2, which does not exist";
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn kube_proxy_failed_restore_is_an_error() {
    let (directory, path) = write_lab(fake::lab_without_rules());
    let program = fake::write_fake_kube_proxy(directory.path(), fake::SYNC_FAILS);
    let (program, path) = (program.display().to_string(), path.display().to_string());
    let case = format!("{path}/policy=Local");
    let log = "Failed to execute iptables-restore: exit status 1 (Message too long)";
    let common = [
        "--kernel=host",
        "--kube-proxy",
        &program,
        "--kube-proxy-timeout=3s",
    ];
    for (command, name) in [("run", &case), ("verify", &path), ("up", &case)] {
        let output = run(&[&[command], &common[..], &[name]].concat());
        let text = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{command}: {text}");
        assert!(
            text.contains(" wrote no rules within 3 s"),
            "{command}: {text}"
        );
        assert!(text.contains(log), "{command}: {text}");
        assert!(!text.contains("no flow changed"), "{command}: {text}");
    }
}

#[test]
fn kube_proxy_without_requests_for_objects_is_an_error() {
    let (output, text) = run_with_fake(fake::SYNCS_WITHOUT_OBJECTS);
    assert_eq!(output.status.code(), Some(1), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn kube_proxy_in_other_mode_is_an_error() {
    let (output, text) = run_with_fake(fake::OTHER_MODE);
    assert_eq!(output.status.code(), Some(1), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn kube_proxy_large_metrics_are_an_error() {
    let (output, text) = run_with_fake(fake::LARGE_METRICS);
    assert_eq!(output.status.code(), Some(1), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn kube_proxy_second_restore_succeeds_run_passes() {
    let (output, text) = run_with_fake(fake::SYNC_RECOVERS);
    assert_eq!(output.status.code(), Some(0), "{text}");
}

#[test]
fn binary_field_without_flag_is_refused() {
    let (code, text) = run_with_binary(b"#!/bin/sh\n", 0o755, "bindLoadBalancerIPs: false, ");
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn binary_other_program_exit_is_reported() {
    let script = b"#!/bin/sh\necho \"I know nothing of $1\" >&2\nexit 3\n";
    let (code, text) = run_with_binary(script, 0o755, "");
    assert_eq!(code, Some(1), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn kube_proxy_args_without_binary_are_refused() {
    let text = LAB.replacen(
        "kubeProxy: {version",
        "kubeProxy: {args: [--v=4], timeout: 10m, version",
        1,
    );
    let another = "---
apiVersion: v1
kind: Node
metadata: {name: another}
spec: {podCIDR: 10.244.77.0/24}
status: {addresses: [{type: InternalIP, address: 192.168.77.11}]}
";
    let (directory, path) = write_lab(text + another);
    let output = run(&["run", "--kernel=host", &path.display().to_string()]);
    let (code, text) = render_output(&output, directory.path());
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn run_missing_kube_proxy_file_is_refused() {
    let (directory, path) = write_lab(LAB);
    let path = path.display().to_string();
    let output = run(&["run", "--kube-proxy", "/nowhere/kube-proxy", &path]);
    let (code, text) = render_output(&output, directory.path());
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn kube_proxy_exit_reports_refused_requests() {
    let (output, text) = run_with_fake(fake::EXITS);
    assert_eq!(output.status.code(), Some(1), "{text}");
    insta::assert_snapshot!(text);
}

/// Plans the first case of a lab with that kube-proxy.
fn plan_first_case(lab: &Path, kube_proxy: &Path) -> Plan {
    let directory = lab.parent().expect("a directory");
    let labs = select_labs(&[lab.display().to_string()], directory).expect("the lab");
    let wishes = PrepareOptions {
        kube_proxy: Some(kube_proxy.to_owned()),
        ..PrepareOptions::from(MaxWait::SETTLED)
    };
    let case = &labs[0].scenario.cases()[0];
    prepare(&labs[0], case, wishes)
        .expect("the case can be prepared")
        .plan
}

#[test]
fn api_server_for_kube_proxy_serves_every_kind_of_lab() {
    let cidr = "---\napiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\n\
                metadata: {name: kubernetes}\nspec: {cidrs: [10.96.0.0/16]}\n";
    let (directory, path) = write_lab(fake::lab_without_rules() + cidr);
    let plan = plan_first_case(
        &path,
        &fake::write_fake_kube_proxy(directory.path(), fake::SYNCS),
    );
    let kinds: BTreeSet<&str> = plan
        .objects
        .iter()
        .filter_map(|object| object["kind"].as_str())
        .collect();
    let wanted = ["EndpointSlice", "Node", "Service", "ServiceCIDR"];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), wanted);
    let mut store = Store::new();
    store
        .replace(plan.objects)
        .expect("the store accepts all kinds");
    let cidrs: Vec<_> = store.objects(Resource::ServiceCidrs).collect();
    assert_eq!(cidrs.len(), 1);
}

#[test]
fn kube_proxy_without_rules_reports_refused_requests() {
    let (directory, path) = write_lab(fake::lab_without_rules());
    let program = fake::write_fake_kube_proxy(directory.path(), fake::NEVER_SYNCS);
    let plan = plan_first_case(&path, &program);
    let build_error = |within: Duration| {
        let mut plan = plan.clone();
        for proxy in &mut plan.kube_proxies {
            proxy.sync_timeout = within;
        }
        block_on(async {
            let host = Host::with_agent(agent()).with_programs([program.clone()]);
            let agent = host.start().await.expect("an agent");
            agent
                .build(plan)
                .await
                .expect_err("the program writes no rules")
        })
    };
    // Doubles the time until the program has logged its last line.
    let mut within = Duration::from_secs(1);
    let error = loop {
        let error = build_error(within);
        if error.to_string().contains(fake::LAST_LINE) || within > Duration::from_mins(2) {
            break error;
        }
        within *= 2;
    };
    let error = to_run_error(&error);
    assert_eq!(error.kind, ErrorKind::KubeProxy);
    let remedy = error.remedy.unwrap_or_default();
    let text = format!("{}\nhelp: {remedy}", error.message);
    let text = text.replace(&directory.path().display().to_string(), "LABS");
    insta::with_settings!({filters => vec![(r"within \d+ s", "within N s")]}, {
        insta::assert_snapshot!(text);
    });
}

#[test]
fn run_refused_api_request_prints_warning() {
    let (output, text) = run_with_fake(fake::SYNCS);
    assert_eq!(output.status.code(), Some(0), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn run_refused_api_requests_are_in_json_and_report() {
    let (directory, path) = write_lab(fake::lab_without_rules());
    let program = fake::write_fake_kube_proxy(directory.path(), fake::SYNCS);
    let report = directory.path().join("report");
    let output = run(&[
        "run",
        "--kernel=host",
        "--format=json",
        "--kube-proxy",
        &program.display().to_string(),
        "--report",
        &report.display().to_string(),
        &format!("{}/policy=Local", path.display()),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let results: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_matches_schema(&results, include_str!("../../schema/results.v1.json"));
    let refused = &results["cases"][0]["refused"];
    insta::assert_snapshot!(serde_json::to_string_pretty(refused).expect("JSON"));
    let evidence = read_case(&report.join("lab/policy=Local")).expect("the evidence");
    assert_matches_schema(&evidence, include_str!("../../schema/evidence.v1.json"));
    assert_eq!(&evidence["evidence"]["refused"], refused);
}
