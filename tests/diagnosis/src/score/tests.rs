//! Scores of outputs that were written by hand.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::tool::Output;

fn dropping_rule() -> Vec<Culprit> {
    vec![Culprit::rule(
        "node-1",
        "FORWARD",
        &["-d 10.244.2.20/32 -j DROP"],
    )]
}

fn explained(verdict: &str, sentences: &[&str]) -> Value {
    json!({"schema": "svclab/journeys/v1", "cases": [{"expected": false, "stages": [{"connections": [
        {"probe": "call", "verdict": verdict, "conclusion": sentences},
        {"probe": "other", "verdict": "timeout",
            "conclusion": ["SYN was dropped in node-1 by filter INPUT rule 9: `-j DROP`"]},
    ]}]}]})
}

fn graded(sentences: &[&str], culprits: &[Culprit]) -> Grade {
    grade(
        &journeys(&explained("timeout", sentences), &["call".to_owned()]),
        culprits,
    )
}

#[test]
fn explain_sentences_are_graded_by_their_cause() {
    let culprits = dropping_rule();
    let exact = "SYN was dropped in node-1 by filter FORWARD rule 1: `-d 10.244.2.20/32 -j DROP`";
    assert_eq!(graded(&[exact], &culprits), Grade::Exact);
    let near = "SYN was dropped in node-1 by filter FORWARD rule 7: `-j KUBE-FORWARD`";
    assert_eq!(graded(&[near], &culprits), Grade::Near);
    let other = "SYN was dropped in node-1 by mangle PREROUTING rule 1: `-j DROP`";
    assert_eq!(graded(&[other], &culprits), Grade::Other);
    // A raw drop reason names no object.
    let raw = "SYN from 10.0.0.1:4000 (a) was dropped in node-1: NOT_SPECIFIED in ip_error";
    assert_eq!(graded(&[raw], &culprits), Grade::Nothing);
    // The path of a packet is no cause.
    let path = "SYN reached pod/default/db at 10.244.2.20:8080";
    assert_eq!(graded(&[path], &culprits), Grade::Nothing);
    assert_eq!(graded(&[], &culprits), Grade::Nothing);
}

#[test]
fn explain_rule_of_another_node_is_near() {
    let sentence =
        "SYN was dropped in node-2 by filter FORWARD rule 1: `-d 10.244.2.20/32 -j DROP`";
    assert_eq!(graded(&[sentence], &dropping_rule()), Grade::Near);
}

#[test]
fn explain_expected_result_is_an_all_clear() {
    let mut document = explained("connected", &[]);
    assert!(!journeys(&document, &["call".to_owned()]).all_clear);
    document["cases"][0]["expected"] = json!(true);
    assert!(journeys(&document, &["call".to_owned()]).all_clear);
}

#[test]
fn explain_sysctl_of_another_interface_is_near() {
    let culprits = vec![Culprit::sysctl("node-1", "net.ipv4.conf.all.rp_filter")];
    let sentence =
        |name: &str| format!("SYN was dropped in node-1: IP_RPFILTER; sysctl {name} = 1");
    assert_eq!(
        graded(&[&sentence("net.ipv4.conf.all.rp_filter")], &culprits),
        Grade::Exact
    );
    assert_eq!(
        graded(&[&sentence("net.ipv4.conf.eth0.rp_filter")], &culprits),
        Grade::Near
    );
}

#[test]
fn explain_absent_rule_is_exact_if_absence_is_stated() {
    let culprits = vec![Culprit::missing_rule(
        "node-1",
        "KUBE-SEP-A",
        &["10.244.2.20:8080"],
    )];
    let stated = "node-1: nat KUBE-SEP-A lacks a rule with DNAT, refused";
    assert_eq!(graded(&[stated], &culprits), Grade::Exact);
    let passed = "SYN passed nat KUBE-SEP-A rule 1 and was refused";
    assert_eq!(graded(&[passed], &culprits), Grade::Near);
}

#[test]
fn replay_all_connections_as_expected_is_an_all_clear() {
    let document = json!({"schema": "svclab/replay/v1",
        "nodes": [{"node": "node-1", "omitted": [{"description": "3 neighbours on flannel.1 10.244.2.0"}]}],
        "case": {"expected": true, "stages": [{"connections": []}]}});
    let answer = journeys(&document, &["call".to_owned()]);
    assert!(answer.all_clear);
    // The object is listed as not replayed.
    let culprits = vec![Culprit::neighbour("node-1", "10.244.2.0", "flannel.1")];
    assert_eq!(grade(&answer, &culprits), Grade::Exact);
}

#[test]
fn diff_differences_are_graded() {
    let document = json!({"schema": "svclab/diff/v1", "same": false, "differences": [
        {"location": {"of": "chain", "program": "iptables-save", "table": "filter", "chain": "FORWARD"},
            "change": "item", "only": "second", "item": "-d 10.244.2.20/32 -j DROP", "line": 31}]});
    let answer = diff(&document);
    assert!(!answer.all_clear);
    assert_eq!(grade(&answer, &dropping_rule()), Grade::Exact);
    let elsewhere = vec![Culprit::rule("node-1", "FORWARD", &["10.244.2.2"])];
    assert_eq!(grade(&answer, &elsewhere), Grade::Near);
    let route = vec![Culprit::route("node-1", "10.244.9.0/24")];
    assert_eq!(grade(&answer, &route), Grade::Other);
    // The rules of a service show its fields in dumps, and only there.
    let field = vec![Culprit::field("FORWARD", &["externalTrafficPolicy"])];
    assert_eq!(grade(&answer, &field), Grade::Exact);
    let by_trials = Answer {
        form: Form::Culprits,
        ..diff(&document)
    };
    assert_eq!(grade(&by_trials, &field), Grade::Near);
    let same = diff(&json!({"same": true, "differences": []}));
    assert!(same.all_clear);
    assert_eq!(grade(&same, &route), Grade::Nothing);
}

#[test]
fn diff_routes_are_graded_by_destination() {
    let document = json!({"same": false, "differences": [{"location": {"of": "routes", "family": "v4",
        "table": "main"}, "change": "item", "only": "second", "item": "blackhole 10.244.2.20 "}]});
    let culprits = vec![Culprit::route("node-1", "10.244.2.20")];
    assert_eq!(grade(&diff(&document), &culprits), Grade::Exact);
}

fn output(stdout: &str, stderr: &str) -> Output {
    Output {
        code: Some(2),
        stdout: stdout.to_owned(),
        stderr: stderr.to_owned(),
        duration: Duration::from_secs(1),
        timed_out: false,
    }
}

#[test]
fn bisect_culprits_and_errors_are_read() {
    let document = json!({"schema": "svclab/bisection/v1", "trials": [{}, {}], "breaks": [[{
        "namespace": "node-1", "kind": "rule", "location": "iptables filter FORWARD",
        "bad": "-d 10.244.2.20/32 -j DROP"}]], "fixes": []});
    let answer = bisect(&output(&document.to_string(), ""));
    assert_eq!(answer.trials, 2);
    assert_eq!(grade(&answer, &dropping_rule()), Grade::Exact);
    let further = json!({"breaks": [], "fixes": [], "further": [document]});
    let answer = bisect(&output(&further.to_string(), ""));
    assert_eq!(grade(&answer, &dropping_rule()), Grade::Exact);
    let declared = json!({"breaks": [], "fixes": [], "declaredBy": [{"document": "Lab",
        "fields": [{"path": "spec.kubeProxy.masqueradeAll", "bad": "true"}]}]});
    let field = vec![Culprit::field("kubeProxy", &["masqueradeAll"])];
    let answer = bisect(&output(&declared.to_string(), ""));
    assert_eq!(grade(&answer, &field), Grade::Exact);
    let alike = bisect(&output(
        "",
        "error: good and bad behave the same: h and b have 1 difference",
    ));
    assert!(alike.all_clear);
    let untried = bisect(&Output {
        code: Some(1),
        ..output(
            "",
            "error: h and b have no differences that can be tried; not tried, because svclab does \
             not build it:\n  only in bad: rules:3: FORWARD -d 10.244.2.20/32 -j DROP\nhelp: look",
        )
    });
    assert!(!untried.all_clear);
    assert_eq!(grade(&untried, &dropping_rule()), Grade::Exact);
    let unstable = bisect(&output(
        "",
        "error: no stable result: the outcomes of call differ",
    ));
    assert!(!unstable.all_clear);
    assert_eq!(grade(&unstable, &dropping_rule()), Grade::Nothing);
    assert!(
        unstable
            .failure
            .expect("an error")
            .contains("no stable result")
    );
}

fn cured(change: &Value) -> Answer {
    why(
        &json!({"schema": "svclab/why/v1", "cases": [{"runs": 4, "failing": [
        {"probe": "call", "fixes": [{"changes": [change]}]}]}]}),
    )
}

#[test]
fn why_cures_are_graded() {
    let right = cured(
        &json!({"description": "delete rule 1 of filter FORWARD on node-1", "change":
        {"what": "deleteRule", "namespace": "node-1", "chain": "FORWARD", "rule": "-d 10.244.2.20/32 -j DROP"}}),
    );
    assert_eq!((right.trials, right.form), (4, Form::Cures));
    assert_eq!(grade(&right, &dropping_rule()), Grade::Exact);
    let wrong = cured(&json!({"description": "start kube-proxy with --masquerade-all"}));
    assert_eq!(grade(&wrong, &dropping_rule()), Grade::Other);
    let is_false = |answer: &Answer| {
        let culprits = dropping_rule();
        is_false_cure(answer, &culprits.iter().collect::<Vec<_>>())
    };
    assert!(is_false(&wrong) && !is_false(&right));
    // One probe has only a wrong cure.
    assert!(is_false(&right.and(wrong)));
    let none = why(&json!({"cases": [{"runs": 1, "failing": []}]}));
    assert!(none.all_clear && none.statements.is_empty());
    assert!(!why(&json!({"cases": []})).all_clear);
}

#[test]
fn why_undone_manual_changes_are_only_near() {
    let undone = cured(&json!({"description": "undo the manual changes on node-1",
        "necessary": "iptables -I FORWARD 1 -d 10.244.2.20/32 -j DROP"}));
    assert_eq!(grade(&undone, &dropping_rule()), Grade::Near);
}

#[test]
fn why_deleted_conntrack_entries_are_exact() {
    let culprits = [Culprit::connection("node-1", "10.96.0.53", "10.244.2.210")];
    let deleted = |address: &str| {
        cured(&json!({"description":
            format!("delete the conntrack entries of udp to {address}:53 on node-1"),
            "change": {"what": "deleteConnections", "namespace": "node-1"}}))
    };
    assert_eq!(grade(&deleted("10.96.0.53"), &culprits), Grade::Exact);
    assert_eq!(grade(&deleted("10.96.0.10"), &culprits), Grade::Other);
}

#[test]
fn failing_probes_result_of_a_run_is_read() {
    let run = |result: &str| {
        let document = json!({"cases": [{"result": result, "error": {"message": "no kernel"}, "probes": [
            {"name": "call", "holds": false}, {"name": "other", "holds": true}]}]});
        failing_probes(&output(&document.to_string(), ""))
    };
    assert_eq!(run("pass"), Ok(Vec::new()));
    assert_eq!(run("fail"), Ok(vec!["call".to_owned()]));
    assert_eq!(run("error"), Err("no kernel".to_owned()));
    assert!(failing_probes(&output("", "error: invalid lab")).is_err());
}

#[test]
fn contains_words_names_are_matched_as_a_whole() {
    let has = |text: &str, word: &str| contains_words(text, &[word.to_owned()]);
    assert!(has("-d 10.244.2.20/32 -j drop", "10.244.2.20"));
    assert!(!has("-d 10.244.2.20/32", "10.244.2.2"));
    assert!(!has("nat kube-mark-masq rule 1", "KUBE-MARK"));
    assert!(has("through flannel.1.", "flannel.1"));
    assert!(has("a permanent neighbour of eth0", "neigh*"));
    assert!(!has("net.ipv4.conf.all.rp_filter", "conf"));
    assert!(has("mtu 1400, state up", "mtu"));
}
