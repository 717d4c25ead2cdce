//! Runs the real kube-proxy on nodes of labs: cases of its version pass.

use std::process::{Command, Output};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use svclab_runner::kernel::Host;
use svclab_runner::run::{PrepareOptions, Prepared, prepare, select_labs};
use svclab_test_support::block_on;
use svclab_test_support::programs::agent;

use crate::bench;
use crate::trial;

/// The lab, and the part of the names of its cases for that version.
const CASES: &str = "local-ingress";
const VERSION: &str = "version=v1.20";

/// A case of that version whose services change.
const STEPPED: &str = "service-changes/version=v1.20.2,mode=iptables";

/// Returns one trial for each case, and trials of failures.
pub fn trials() -> Vec<Trial> {
    let cases = prepare_cases().expect("the cases can be prepared");
    let mut trials: Vec<Trial> = cases
        .into_iter()
        .map(|case| {
            let id = case.case.id;
            trial(format!("labs::{id}"), move || check_case_passes(&id))
        })
        .collect();
    trials.push(trial(format!("labs::{STEPPED}"), check_steps));
    trials.push(trial("labs::a_flag_that_it_rejects", check_unknown_flag));
    trials.push(trial("labs::it_is_killed_during_a_run", check_killed_proxy));
    trials
}

/// Prepares the cases with the real kube-proxy on their nodes.
fn prepare_cases() -> Result<Vec<Prepared>, Failed> {
    let topologies = svclab_test_support::root().join("topologies");
    let labs = select_labs(&[CASES.to_owned()], &topologies)?;
    let wishes = PrepareOptions {
        kube_proxy: Some(bench::binary()?),
        ..PrepareOptions::from(Duration::from_secs(3))
    };
    let lab = labs.first().ok_or("the lab is not there")?;
    let cases = lab.scenario.cases().iter();
    cases
        .filter(|case| case.id.contains(VERSION))
        .map(|case| {
            prepare(lab, case, wishes.clone()).map_err(|problems| format!("{problems:?}").into())
        })
        .collect()
}

fn run_svclab(arguments: &[&str]) -> Result<Output, Failed> {
    let binary = bench::binary()?.display().to_string();
    let output = Command::new(crate::SVCLAB)
        .current_dir(svclab_test_support::root())
        .env_remove("SVCLAB_TOPOLOGIES")
        .env("NO_COLOR", "1")
        .args(["run", "--kube-proxy", &binary])
        .args(arguments)
        .output()?;
    Ok(output)
}

fn check_case_passes(case: &str) -> Result<(), Failed> {
    let output = run_svclab(&[case])?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && !printed.contains("API server refused") {
        return Ok(());
    }
    Err(Failed::from(printed))
}

/// kube-proxy receives the changes and changes its rules itself, including the deletion of
/// conntrack entries. The results contain the delay of traffic for each step.
fn check_steps() -> Result<(), Failed> {
    let output = run_svclab(&[STEPPED, "--format", "json"])?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(Failed::from(printed));
    }
    let results: serde_json::Value = serde_json::from_str(&printed)?;
    let steps = results["cases"][0]["steps"].as_array();
    let moved: Vec<(&str, Option<u64>)> = steps
        .into_iter()
        .flatten()
        .filter_map(|step| {
            Some((
                step["name"].as_str()?,
                step["shifts"][0]["delayUs"].as_u64(),
            ))
        })
        .collect();
    let names = ["oneComes", "oneLeaves", "oneIsGone", "policyFlips"];
    let is_told = moved.iter().map(|(name, _)| *name).eq(names)
        && moved.iter().all(|(_, us)| us.is_some_and(|us| us > 0));
    if is_told {
        Ok(())
    } else {
        Err(Failed::from(printed))
    }
}

/// Checks that the error contains kube-proxy's own message.
fn check_unknown_flag() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let lab = svclab_test_support::root().join("topologies/local-ingress.yaml");
    let text = std::fs::read_to_string(lab)?;
    let changed = text.replacen("kubeProxy: {", "kubeProxy: {args: [--no-such-flag], ", 1);
    let path = directory.path().join("local-ingress.yaml");
    std::fs::write(&path, changed)?;
    let case = "policy=Cluster,clusterCIDR=set,version=v1.20,mode=iptables";
    let output = run_svclab(&[&format!("{}/{case}", path.display())])?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(1) && printed.contains("unknown flag: --no-such-flag") {
        return Ok(());
    }
    Err(Failed::from(printed))
}

/// kube-proxy ends while the lab runs: the probe returns an error that names it, and no verdict.
fn check_killed_proxy() -> Result<(), Failed> {
    let case = prepare_cases()?
        .into_iter()
        .find(|case| case.case.id.contains("mode=iptables"))
        .ok_or("no case has mode=iptables")?;
    let binary = bench::binary()?;
    block_on(async {
        let host = Host::with_agent(agent()).with_programs([binary.clone()]);
        let agent = host.start().await?;
        let mut session = agent.build(case.plan).await?;
        let kill = format!(
            "for each in /proc/[0-9]*; do \
             [ \"$(readlink \"$each/exe\")\" = '{}' ] && kill -KILL \"${{each#/proc/}}\"; done; true",
            binary.display()
        );
        let words = ["-c".to_owned(), kill];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let finished = session.run("node-1", "sh", &words, "").await?;
        if !finished.success {
            return Err(Failed::from(finished.stderr));
        }
        match session.probe().await {
            Err(error) if error.to_string().contains("the kube-proxy of node-1") => Ok(()),
            other => Err(Failed::from(format!("{other:?}"))),
        }
    })
}
