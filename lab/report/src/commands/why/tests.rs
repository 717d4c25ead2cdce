//! Tests the text of findings.

mod changes;

use std::collections::BTreeMap;

use super::*;
use changes::{all_changes, differences, named, node_changes};
use svclab_dump::Owner;
use svclab_experiment::bisect::Kind;
use svclab_experiment::why::{
    ExpectedResult, PolicyField, ProposedChange, ServiceField, Stopped, TypedCommand, UnreadState,
};
use svclab_judge::{Cause, Fact, NamedAddress, Observed, RuleReference};
use svclab_model::evidence::Verdict;
use svclab_model::plan::{
    Backend, Forwarding, ForwardingTarget, Neighbour, Route, RouteKind, RoutingAction, RoutingRule,
};
use svclab_planner::replay::{OmittedItem, ReplayReport};
use svclab_ruleset::Protocol;

fn lost_by_rule() -> Fact {
    let address = |address: &str| NamedAddress {
        address: address.parse().expect("an address"),
        name: None,
    };
    let rule = RuleReference {
        backend: Backend::Nft,
        both_backends: false,
        table: named("filter"),
        chain: named("FORWARD"),
        number: Some(1),
        rule: None,
        target: Some(named("DROP")),
        entries: Vec::new(),
        service: None,
    };
    Fact::Lost {
        packet: svclab_journey::journey::Kind::Syn,
        namespace: named("node-1"),
        ingress: None,
        source: address("192.0.2.1:4000"),
        destination: address("10.96.0.1:80"),
        tunnel: None,
        cause: Cause::Rule {
            rule,
            marked_by: None,
            unmatched: Vec::new(),
            sent_by: None,
        },
        bypassed: Vec::new(),
    }
}

/// Describes a change as `why` does in a lab in which kube-proxy writes the set entry and the
/// nftables rules.
fn described(change: &ProposedChange) -> DescribedChange {
    let is_generated = matches!(
        change,
        ProposedChange::DeleteSetEntry { .. }
            | ProposedChange::DeleteNftRule { .. }
            | ProposedChange::DeleteNftElement { .. }
    );
    let commands = matches!(change, ProposedChange::DeleteRule { .. }).then(|| TypedCommand {
        namespace: named("node-1"),
        command: named("iptables-nft -t nat -D POSTROUTING -d 10.244.2.0/24 -j RETURN"),
    });
    DescribedChange {
        description: change.to_string(),
        origin: if is_generated {
            Origin::Generated
        } else {
            Origin::Configured
        },
        commands: commands.into_iter().collect(),
        change: change.clone(),
    }
}

fn finding(cures: &[Vec<ProposedChange>], tried: Vec<TriedChanges>) -> Finding {
    let cures = cures.iter().map(|changes| Fix {
        changes: changes.iter().map(described).collect(),
        necessary: changes.iter().flat_map(differences).collect(),
    });
    Finding {
        case: named("lab/policy=Local"),
        kernel: named("6.12"),
        failing: vec![FailingProbe {
            probe: named("call"),
            after: Some(named("scaled")),
            connected: 1,
            total: 4,
            expected: None,
            observed: Observed {
                verdicts: BTreeMap::from([(Verdict::Connected, 1), (Verdict::Timeout, 3)]),
                ..Observed::default()
            },
            facts: vec![lost_by_rule()],
            fixes: cures.collect(),
        }],
        unexamined: vec![named("other"), named("third")],
        unexpected: Vec::new(),
        dumps: Vec::new(),
        not_modelled: Vec::new(),
        tried,
        untried_pairs: 0,
        stopped: None,
        unread: None,
        assumed: Vec::new(),
        runs: 7,
    }
}

/// Renders one finding as for a pipe.
fn render(finding: Finding) -> String {
    render_text(&[finding], false, false, TerminalWidth::default())
}

#[test]
fn render_text_each_change_matches_snapshot() {
    let each: Vec<Vec<ProposedChange>> = all_changes()
        .into_iter()
        .map(|change| vec![change])
        .collect();
    insta::assert_snapshot!(render(finding(&each, Vec::new())));
}

#[test]
fn render_text_unexamined_probes_match_snapshot() {
    let mut finding = finding(&[], Vec::new());
    finding.failing.clear();
    insta::assert_snapshot!(render(finding));
}

#[test]
fn render_text_unexpected_successes_match_snapshot() {
    let mut finding = finding(&[], Vec::new());
    finding.failing.clear();
    finding.unexamined.clear();
    finding.unexpected = vec![named("blocked"), named("outside")];
    assert!(!finding.is_conclusive());
    insta::assert_snapshot!(render(finding));
}

#[test]
fn render_text_healthy_names_what_was_not_looked_at() {
    let mut finding = finding(&[], Vec::new());
    finding.failing.clear();
    finding.unexamined.clear();
    assert!(finding.is_conclusive());
    let rule = OmittedItem::new(None, named("rule 3 of FORWARD"), named("unknown match"));
    finding.dumps = vec![ReplayReport {
        node: named("node-1"),
        simulated: vec![named("sysctls of the lab: `sysctl -a` was not dumped")],
        omitted: vec![rule],
        ..ReplayReport::default()
    }];
    finding.not_modelled = vec![named("NetworkPolicy")];
    assert!(!finding.is_conclusive());
    insta::assert_snapshot!(render(finding));
}

#[test]
fn render_text_wrong_source_and_endpoint_match_snapshot() {
    let mut finding = finding(&[], Vec::new());
    let failing = &mut finding.failing[0];
    failing.expected = Some(ExpectedResult {
        endpoints: Some(vec![named("web-1"), named("web-2")]),
        sources: Some(vec![named("laptop")]),
    });
    failing.facts.clear();
    failing.observed = Observed {
        verdicts: BTreeMap::from([(Verdict::Connected, 4)]),
        endpoints: BTreeSet::from([named("pod/default/web-1")]),
        seen_sources: BTreeSet::from([named("node-1")]),
        ..Observed::default()
    };
    insta::assert_snapshot!(render(finding));
}

#[test]
fn render_text_joint_changes_match_snapshot() {
    let pair = all_changes().into_iter().skip(2).take(2).collect();
    insta::assert_snapshot!(render(finding(&[pair], Vec::new())));
}

#[test]
fn render_text_no_fix_lists_tried_changes() {
    let ran = |connected, worse: &[&str]| ChangeResult::Finished {
        probes: vec![ProbeCount {
            probe: named("call"),
            connected,
            total: 4,
            made: connected,
        }],
        worse: worse.iter().map(|name| named(name)).collect(),
    };
    let refused = ChangeResult::Refused {
        why: named("the change has no effect"),
    };
    let results = [ran(2, &[]), ran(4, &["other", "third"]), refused];
    let tried = all_changes()
        .into_iter()
        .zip(results)
        .map(|(change, came)| TriedChanges {
            changes: vec![described(&change)],
            result: came,
        });
    let mut tried: Vec<TriedChanges> = tried.collect();
    let pair = all_changes().into_iter().take(2);
    tried.push(TriedChanges {
        changes: pair.map(|change| described(&change)).collect(),
        result: ran(3, &[]),
    });
    let finding = finding(&[], tried);
    assert!(!finding.is_answered());
    let [short, long] = [false, true].map(|verbose| {
        render_text(
            std::slice::from_ref(&finding),
            verbose,
            false,
            TerminalWidth::default(),
        )
    });
    insta::assert_snapshot!(short);
    insta::assert_snapshot!("render_text_verbose_lists_pairs", long);
}

/// Renders a finding without the changes that did not help.
fn text_of(finding: &Finding) -> String {
    render_text(
        std::slice::from_ref(finding),
        false,
        false,
        TerminalWidth::default(),
    )
}

#[test]
fn render_text_untried_pairs_are_counted() {
    let mut finding = finding(&[], Vec::new());
    for (untried, sentence) in [
        (1, "1 pair of changes was not tried"),
        (90, "90 pairs of changes were not tried"),
    ] {
        finding.untried_pairs = untried;
        let text = text_of(&finding);
        assert!(text.contains(sentence), "{text}");
    }
}

#[test]
fn render_text_end_at_time_limit_is_stated() {
    let mut finding = finding(&[], Vec::new());
    for (untried, sentence) in [
        (
            0,
            "further changes were not tried: the search ended after 1m 30s (--timeout)",
        ),
        (
            1,
            "1 known change or set of changes, and further ones that follow from their\nresults, \
             were not tried: the search ended after 1m 30s (--timeout)",
        ),
    ] {
        finding.stopped = Some(Stopped {
            limit_ms: 90_000,
            untried,
        });
        let text = text_of(&finding);
        assert!(text.contains(sentence), "{text}");
    }
}

#[test]
fn render_first_fix_has_its_commands() {
    let changes = node_changes();
    let change = changes
        .iter()
        .find(|change| matches!(change, ProposedChange::DeleteRule { .. }));
    let change = described(change.expect("a rule"));
    insta::assert_snapshot!(render_first_fix("lab/policy=Local", "call", &[change]));
}

#[test]
fn render_text_unread_state_is_named() {
    let mut finding = finding(&[], Vec::new());
    finding.unread = Some(UnreadState {
        nodes: vec!["node-1".to_owned(), "node-2".to_owned()],
        reason: "on node-1, `sysctl -a` failed: no such program".to_owned(),
    });
    let text = text_of(&finding);
    let (_, text) = text.split_once("tried\n").expect("the last lines");
    insta::assert_snapshot!(text, @r"
    single objects of node-1, node-2 were not restored, because the state after the
    manual commands is unknown: on node-1, `sysctl -a` failed: no such program
    Other failing probes, not examined: other, third; select one with `--probe`
    ");
}

#[test]
fn render_text_assumption_is_first() {
    let mut finding = finding(&[], Vec::new());
    finding.assumed = vec!["next hop 10.0.0.77 on eth0 of node-1 does not reply".to_owned()];
    let text = text_of(&finding);
    let (text, _) = text.split_once("succeed\n").expect("the first lines");
    insta::assert_snapshot!(text, @r"
    lab/policy=Local, on 6.12
      assumed: next hop 10.0.0.77 on eth0 of node-1 does not reply

    call, after `scaled`: 1 of 4 connections
    ");
}
