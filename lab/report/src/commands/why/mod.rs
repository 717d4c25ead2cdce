//! Renders the changes that make failing cases succeed.

mod document;

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use crate::text::conclusion::render_facts;
use crate::text::{count, join, push_wrapped, with_colour};
use svclab_experiment::bisect::Difference;
use svclab_experiment::why::{
    ChangeResult, DescribedChange, FailingProbe, Finding, Fix, Origin, ProbeCount, TriedChanges,
};

pub use document::{CaseFinding, Document, ExplainedProbe, SCHEMA};

/// Maximum width of sentences, in columns.
const WIDTH: usize = 80;

const HEAD: Style = AnsiColor::Yellow.on_default().bold();

/// Renders the failing probes and their fixes. Changes that did not help are included with
/// `verbose`, or if a probe has no fix.
#[must_use]
pub fn render_text(findings: &[Finding], verbose: bool, colour: bool) -> String {
    let findings = findings.iter();
    let texts = findings.map(|finding| render_finding(finding, verbose));
    with_colour(join(texts, "\n"), colour)
}

fn render_finding(finding: &Finding, verbose: bool) -> String {
    let mut text = format!("{HEAD}{}{HEAD:#}, on {}\n", finding.case, finding.kernel);
    if finding.is_healthy() {
        if finding.unexamined.is_empty() {
            text += "  no failures: all connections succeed\n";
        } else {
            text += "  no failures: all examined connections succeed\n";
            push_unexamined(&mut text, &finding.unexamined);
        }
        return text;
    }
    // Probes with the same fixes are grouped.
    let mut groups: Vec<Vec<&FailingProbe>> = Vec::new();
    for wrong in &finding.failing {
        let alike = |group: &&mut Vec<&FailingProbe>| group[0].fixes == wrong.fixes;
        match groups.iter_mut().find(alike) {
            Some(group) => group.push(wrong),
            None => groups.push(vec![wrong]),
        }
    }
    for group in groups {
        for wrong in &group {
            let (probe, connected, total) = (&wrong.probe, wrong.connected, wrong.total);
            let after = wrong.after.iter().map(|step| format!(", after `{step}`"));
            let after: String = after.collect();
            let _ = writeln!(
                text,
                "\n{probe}{after}: {connected} of {total} connections succeed"
            );
            for sentence in render_facts(&wrong.facts) {
                push_item(&mut text, &sentence);
            }
        }
        push_fixes(&mut text, &group[0].fixes, group.len() > 1);
    }
    let useless: Vec<&TriedChanges> = finding
        .tried
        .iter()
        .filter(|tried| {
            !finding
                .failing
                .iter()
                .any(|wrong| tried.result.is_fix_for(&wrong.probe))
        })
        .collect();
    if !useless.is_empty() && (verbose || !finding.is_answered()) {
        let _ = writeln!(text, "\nChanges that do not help:");
        let shown = |tried: &&&TriedChanges| verbose || tried.changes.len() == 1;
        for tried in useless.iter().filter(shown) {
            push_item(
                &mut text,
                &format!(
                    "{}: {}",
                    join_descriptions(&tried.changes),
                    describe_result(&tried.result)
                ),
            );
        }
        let hidden = useless.iter().filter(|tried| !shown(tried)).count();
        if hidden > 0 {
            let pairs = count(hidden, "pair", "pairs");
            let _ = writeln!(text, "  and {pairs} of these changes (-v shows all)");
        }
    }
    let tried = count(finding.tried.len(), "change was", "changes were");
    let _ = writeln!(text, "\n{tried} tried");
    match finding.untried_pairs {
        0 => {}
        1 => text += "1 pair of changes was not tried: there are too many pairs\n",
        many => {
            let _ = writeln!(
                text,
                "{many} pairs of changes were not tried: there are too many pairs"
            );
        }
    }
    push_unexamined(&mut text, &finding.unexamined);
    text
}

/// Adds the failing probes that were not examined.
fn push_unexamined(text: &mut String, probes: &[String]) {
    if !probes.is_empty() {
        let _ = writeln!(
            text,
            "Other failing probes, not examined: {}; select one with `--probe`",
            probes.join(", ")
        );
    }
}

fn push_fixes(text: &mut String, fixes: &[Fix], several: bool) {
    let them = if several { "them" } else { "it" };
    let (configured, generated): (Vec<&Fix>, Vec<&Fix>) = fixes.iter().partition(|cure| {
        cure.changes
            .iter()
            .all(|described| described.origin == Origin::Configured)
    });
    if fixes.is_empty() {
        let _ = writeln!(text, "\n  No tried change fixes {them}.");
    }
    let only_generated = configured.is_empty();
    if !configured.is_empty() {
        let each = if configured.len() == 1 {
            "This change"
        } else {
            "Each of these changes alone"
        };
        let _ = writeln!(
            text,
            "\n  {each} fixes {them}, and no other probe gets worse:"
        );
        for fix in configured {
            push_item(text, &join_descriptions(&fix.changes));
            push_necessary(text, &fix.necessary);
        }
    }
    if !generated.is_empty() {
        let head = if only_generated {
            "Only changes to generated state help, until the component writes it again:"
        } else {
            "Changes to generated state also help, until the component writes it again:"
        };
        let _ = writeln!(text, "\n  {head}");
        for fix in generated {
            push_item(text, &join_descriptions(&fix.changes));
        }
    }
}

/// Adds the differences that are needed, as they are without the fix.
fn push_necessary(text: &mut String, differences: &[Difference]) {
    for difference in differences {
        let location = format!("{} on {}", difference.location, difference.namespace);
        let sentence = match (&difference.good, &difference.bad) {
            (Some(good), Some(bad)) if good == bad => {
                format!("in {location}, this is in another position: `{bad}`")
            }
            (Some(good), Some(bad)) => format!("in {location}, `{bad}` replaces `{good}`"),
            (Some(good), None) => format!("in {location}, this is missing: `{good}`"),
            (None, Some(bad)) => format!("in {location}, this is unexpected: `{bad}`"),
            (None, None) => continue,
        };
        push_wrapped(text, "    * ", &sentence, WIDTH - 2);
    }
}

fn join_descriptions(changes: &[DescribedChange]) -> String {
    let each = changes.iter().map(|described| &described.description);
    join(each, ", and ")
}

fn describe_result(result: &ChangeResult) -> String {
    match result {
        ChangeResult::Finished { probes, worse } => {
            let counts = probes.iter().map(|fared| {
                let ProbeCount {
                    probe,
                    connected,
                    total: of,
                } = fared;
                format!("{probe} {connected} of {of}")
            });
            let mut parts: Vec<String> = counts.collect();
            if !worse.is_empty() {
                parts.push(format!("worse: {}", worse.join(", ")));
            }
            parts.join(", ")
        }
        ChangeResult::Refused { why } => format!("cannot be applied: {why}"),
    }
}

fn push_item(text: &mut String, content: &str) {
    push_wrapped(text, "  - ", content, WIDTH);
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_experiment::bisect::Kind;
    use svclab_experiment::why::{PolicyField, ProposedChange};
    use svclab_judge::{Cause, Fact, NamedAddress, RuleReference};
    use svclab_model::plan::{Backend, Route, RouteKind, RoutingAction, RoutingRule};

    fn named(name: &str) -> String {
        name.to_owned()
    }

    fn route(via: Option<&str>, kind: RouteKind) -> Route {
        Route {
            to: "10.244.2.0/24".parse().expect("a network"),
            via: via.map(|via| via.parse().expect("an address")),
            dev: if kind.is_unicast() {
                named("eth0")
            } else {
                String::new()
            },
            onlink: false,
            source: None,
            kind,
            table: via.map(|_| 7),
            metric: None,
        }
    }

    fn differences(change: &ProposedChange) -> Vec<Difference> {
        let difference = |good: Option<&str>, bad: Option<&str>| Difference {
            namespace: named("node-1"),
            kind: Kind::Rule,
            location: named("iptables nat KUBE-SERVICES"),
            good: good.map(named),
            bad: bad.map(named),
            owner: None,
        };
        if !change.rewrites_rules() {
            return Vec::new();
        }
        let (rule, other) = ("-d 10.96.0.1/32 -j KUBE-MARK-MASQ", "-j RETURN");
        vec![
            difference(Some(rule), None),
            difference(None, Some(other)),
            difference(Some(rule), Some(other)),
            difference(Some(rule), Some(rule)),
        ]
    }

    fn balancer_changes() -> Vec<ProposedChange> {
        vec![
            ProposedChange::UseOwnSource {
                balancer: named("clb"),
            },
            ProposedChange::SkipOwnSource {
                balancer: named("clb"),
            },
            ProposedChange::AddHealthCheck {
                balancer: named("clb"),
            },
            ProposedChange::RemoveSecurityGroup {
                balancer: named("clb"),
            },
            ProposedChange::AddBackend {
                balancer: named("clb"),
                node: named("node-2"),
            },
            ProposedChange::RemoveBackend {
                balancer: named("clb"),
                node: named("node-1"),
            },
        ]
    }

    fn all_changes() -> Vec<ProposedChange> {
        let mut changes = node_changes();
        changes.extend(balancer_changes());
        changes
    }

    fn node_changes() -> Vec<ProposedChange> {
        vec![
            ProposedChange::ClusterPolicy {
                service: named("default/web"),
                field: PolicyField::ExternalTrafficPolicy,
            },
            ProposedChange::ClusterPolicy {
                service: named("default/web"),
                field: PolicyField::InternalTrafficPolicy,
            },
            ProposedChange::ClusterCidr {
                networks: named("10.244.0.0/16"),
            },
            ProposedChange::MasqueradeAll,
            ProposedChange::AllowForeignSources,
            ProposedChange::UndoManualChanges {
                node: named("node-1"),
            },
            ProposedChange::RestartProxy {
                node: named("node-1"),
            },
            ProposedChange::SetSysctl {
                namespaces: vec![named("node-1"), named("node-2")],
                keys: vec![
                    named("net.ipv4.conf.all.rp_filter"),
                    named("net.ipv4.conf.eth0.rp_filter"),
                ],
                value: named("0"),
            },
            ProposedChange::DeleteRule {
                namespace: named("node-1"),
                backend: Backend::Nft,
                v6: false,
                table: named("nat"),
                chain: named("POSTROUTING"),
                number: 4,
                rule: named("-d 10.244.2.0/24 -j RETURN"),
            },
            ProposedChange::DeleteSetEntry {
                namespace: named("node-1"),
                set: named("KUBE-LOAD-BALANCER-LOCAL"),
                entry: named("192.0.2.1,tcp:80"),
            },
            ProposedChange::DeleteNftRule {
                namespace: named("node-1"),
                table: named("ip kube-proxy"),
                chain: named("filter-forward"),
                number: 2,
                rule: named("ip daddr 192.0.2.1 drop"),
            },
            ProposedChange::MasqueradeNetwork {
                network: "10.0.0.0/8".parse().expect("a network"),
            },
            ProposedChange::DeleteRoute {
                namespace: named("node-1"),
                route: Box::new(route(Some("192.0.2.1"), RouteKind::Unicast)),
            },
            ProposedChange::DeleteRoute {
                namespace: named("node-1"),
                route: Box::new(route(None, RouteKind::Blackhole)),
            },
            ProposedChange::AddRoute {
                namespace: named("node-1"),
                route: Box::new(route(Some("192.0.2.1"), RouteKind::Unicast)),
            },
            ProposedChange::DeleteRoutingRule {
                namespace: named("node-1"),
                rule: Box::new(RoutingRule {
                    priority: 100,
                    v6: false,
                    inverted: false,
                    from: Some("10.244.1.0/24".parse().expect("a network")),
                    to: None,
                    mark: None,
                    input_interface: None,
                    output_interface: None,
                    suppress_prefix_length: None,
                    action: RoutingAction::Table(7),
                }),
            },
            ProposedChange::DeleteNftElement {
                namespace: named("node-1"),
                table: named("ip kube-proxy"),
                set: named("no-endpoint-services"),
                key: named("192.0.2.1 . tcp . 80"),
            },
        ]
    }

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
            cause: Cause::Rule {
                rule,
                marked_by: None,
            },
            bypassed: Vec::new(),
        }
    }

    fn finding(cures: &[Vec<ProposedChange>], tried: Vec<TriedChanges>) -> Finding {
        let cures = cures.iter().map(|changes| Fix {
            changes: changes.iter().map(DescribedChange::from).collect(),
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
                facts: vec![lost_by_rule()],
                fixes: cures.collect(),
            }],
            unexamined: vec![named("other"), named("third")],
            tried,
            untried_pairs: 0,
            runs: 7,
        }
    }

    #[test]
    fn render_text_each_change_matches_snapshot() {
        let each: Vec<Vec<ProposedChange>> = all_changes()
            .into_iter()
            .map(|change| vec![change])
            .collect();
        insta::assert_snapshot!(render_text(&[finding(&each, Vec::new())], false, false));
    }

    #[test]
    fn render_text_unexamined_probes_match_snapshot() {
        let mut finding = finding(&[], Vec::new());
        finding.failing.clear();
        insta::assert_snapshot!(render_text(&[finding], false, false));
    }

    #[test]
    fn render_text_joint_changes_match_snapshot() {
        let pair = all_changes().into_iter().skip(2).take(2).collect();
        insta::assert_snapshot!(render_text(&[finding(&[pair], Vec::new())], false, false));
    }

    #[test]
    fn render_text_no_fix_lists_tried_changes() {
        let ran = |connected, worse: &[&str]| ChangeResult::Finished {
            probes: vec![ProbeCount {
                probe: named("call"),
                connected,
                total: 4,
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
                changes: vec![DescribedChange::from(&change)],
                result: came,
            });
        let mut tried: Vec<TriedChanges> = tried.collect();
        let pair = all_changes().into_iter().take(2);
        tried.push(TriedChanges {
            changes: pair.map(|change| DescribedChange::from(&change)).collect(),
            result: ran(3, &[]),
        });
        let finding = finding(&[], tried);
        assert!(!finding.is_answered());
        let [short, long] = [false, true]
            .map(|verbose| render_text(std::slice::from_ref(&finding), verbose, false));
        insta::assert_snapshot!(short);
        insta::assert_snapshot!("render_text_verbose_lists_pairs", long);
    }

    #[test]
    fn render_text_untried_pairs_are_counted() {
        let mut finding = finding(&[], Vec::new());
        for (untried, sentence) in [
            (1, "1 pair of changes was not tried"),
            (90, "90 pairs of changes were not tried"),
        ] {
            finding.untried_pairs = untried;
            let text = render_text(std::slice::from_ref(&finding), false, false);
            assert!(text.contains(sentence), "{text}");
        }
    }
}
