//! Renders the changes that make failing cases succeed.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use super::words::wrap;
use svclab_experiment::bisect::Difference;
use svclab_experiment::why::{Came, Cure, Fared, Finding, Level, Told, Tried, Wrong};

/// Renders the failing probes and their fixes. Changes that did not help are included with
/// `verbose`, or if a probe has no fix.
#[must_use]
pub fn human(findings: &[Finding], verbose: bool, colour: bool) -> String {
    let texts: Vec<String> = findings
        .iter()
        .map(|finding| one(finding, verbose, colour))
        .collect();
    texts.join("\n")
}

fn one(finding: &Finding, verbose: bool, colour: bool) -> String {
    let mut text = format!("{}, on {}\n", bold(&finding.case, colour), finding.kernel);
    if finding.is_healthy() {
        if finding.unasked.is_empty() {
            text += "  nothing is wrong: all connections are made\n";
        } else {
            text += "  nothing is wrong: all connections are made that are asked about\n";
            unasked(&mut text, &finding.unasked);
        }
        return text;
    }
    // Probes with the same fixes are grouped.
    let mut groups: Vec<Vec<&Wrong>> = Vec::new();
    for wrong in &finding.wrong {
        let alike = |group: &&mut Vec<&Wrong>| group[0].cures == wrong.cures;
        match groups.iter_mut().find(alike) {
            Some(group) => group.push(wrong),
            None => groups.push(vec![wrong]),
        }
    }
    for group in groups {
        for wrong in &group {
            let (probe, connected, of) = (&wrong.probe, wrong.connected, wrong.of);
            let after = wrong.after.iter().map(|step| format!(", after `{step}`"));
            let after: String = after.collect();
            let _ = writeln!(
                text,
                "\n{probe}{after}: {connected} of {of} connections made"
            );
            for sentence in &wrong.told {
                item(&mut text, sentence);
            }
        }
        cures(&mut text, &group[0].cures, group.len() > 1);
    }
    let vain: Vec<&Tried> = finding
        .tried
        .iter()
        .filter(|tried| {
            !finding
                .wrong
                .iter()
                .any(|wrong| tried.came.cures(&wrong.probe))
        })
        .collect();
    if !vain.is_empty() && (verbose || !finding.is_answered()) {
        let _ = writeln!(text, "\nTried to no avail:");
        let shown = |tried: &&&Tried| verbose || tried.changes.len() == 1;
        for tried in vain.iter().filter(shown) {
            item(
                &mut text,
                &format!("{}: {}", words(&tried.changes), came(&tried.came)),
            );
        }
        let others = vain.iter().filter(|tried| !shown(tried)).count();
        if others > 0 {
            let pairs = if others == 1 { "pair" } else { "pairs" };
            let _ = writeln!(
                text,
                "  and {others} {pairs} of such changes (-v shows all)"
            );
        }
    }
    let tried = match finding.tried.len() {
        1 => "1 change was".to_owned(),
        many => format!("{many} changes were"),
    };
    let _ = writeln!(text, "\n{tried} tried");
    unasked(&mut text, &finding.unasked);
    text
}

/// Adds the failing probes that were not examined.
fn unasked(text: &mut String, probes: &[String]) {
    if !probes.is_empty() {
        let _ = writeln!(
            text,
            "Not asked about, and not answered: {}; `--probe` asks about one",
            probes.join(", ")
        );
    }
}

fn cures(text: &mut String, all: &[Cure], several: bool) {
    let them = if several { "them" } else { "it" };
    let (said, written): (Vec<&Cure>, Vec<&Cure>) = all
        .iter()
        .partition(|cure| cure.changes.iter().all(|told| told.level == Level::Said));
    if all.is_empty() {
        let _ = writeln!(text, "\n  Nothing that was tried makes {them} work.");
    }
    let is_all = said.is_empty();
    if !said.is_empty() {
        let each = if said.len() == 1 {
            "This"
        } else {
            "Each of these alone"
        };
        let _ = writeln!(
            text,
            "\n  {each} makes {them} work, and no probe fares worse:"
        );
        for cure in said {
            item(text, &words(&cure.changes));
            matters(text, &cure.matters);
        }
    }
    if !written.is_empty() {
        let head = if is_all {
            "It is decided by what a component writes, and will write again:"
        } else {
            "It is decided by what a component writes of that, and will write again:"
        };
        let _ = writeln!(text, "\n  {head}");
        for cure in written {
            item(text, &words(&cure.changes));
        }
    }
}

/// Adds the differences that are needed, as they are without the fix.
fn matters(text: &mut String, all: &[Difference]) {
    for difference in all {
        let place = format!("{} on {}", difference.place, difference.namespace);
        let told = match (&difference.good, &difference.bad) {
            (Some(good), Some(bad)) if good == bad => {
                format!("in {place} this stands elsewhere: `{bad}`")
            }
            (Some(good), Some(bad)) => format!("in {place} `{bad}` stands for `{good}`"),
            (Some(good), None) => format!("in {place} this is missing: `{good}`"),
            (None, Some(bad)) => format!("in {place} this is too much: `{bad}`"),
            (None, None) => continue,
        };
        for (at, line) in wrap(&told, 72).iter().enumerate() {
            let lead = if at == 0 { "    * " } else { "      " };
            let _ = writeln!(text, "{lead}{line}");
        }
    }
}

fn words(changes: &[Told]) -> String {
    let each: Vec<&str> = changes.iter().map(|told| told.words.as_str()).collect();
    each.join(", and ")
}

fn came(came: &Came) -> String {
    match came {
        Came::Ran { probes, worse } => {
            let fared = probes.iter().map(|fared| {
                let Fared {
                    probe,
                    connected,
                    of,
                } = fared;
                format!("{probe} {connected} of {of}")
            });
            let mut told: Vec<String> = fared.collect();
            if !worse.is_empty() {
                told.push(format!("worse: {}", worse.join(", ")));
            }
            told.join(", ")
        }
        Came::Refused { why } => format!("it cannot be made: {why}"),
    }
}

fn item(text: &mut String, words: &str) {
    for (at, line) in wrap(words, 76).iter().enumerate() {
        let lead = if at == 0 { "  - " } else { "    " };
        let _ = writeln!(text, "{lead}{line}");
    }
}

fn bold(text: &str, colour: bool) -> String {
    if !colour {
        return text.to_owned();
    }
    let style = Style::new().bold().fg_color(Some(AnsiColor::Yellow.into()));
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_experiment::bisect::Kind;
    use svclab_experiment::why::{Change, PolicyField};
    use svclab_model::plan::{Backend, Lookup, PolicyRule, Route, RouteKind};

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

    fn differences(change: &Change) -> Vec<Difference> {
        let one = |good: Option<&str>, bad: Option<&str>| Difference {
            namespace: named("node-1"),
            of: Kind::Rule,
            place: named("iptables nat KUBE-SERVICES"),
            good: good.map(named),
            bad: bad.map(named),
            owner: None,
        };
        if !change.writes_much() {
            return Vec::new();
        }
        let (rule, other) = ("-d 10.96.0.1/32 -j KUBE-MARK-MASQ", "-j RETURN");
        vec![
            one(Some(rule), None),
            one(None, Some(other)),
            one(Some(rule), Some(other)),
            one(Some(rule), Some(rule)),
        ]
    }

    fn of_balancers() -> Vec<Change> {
        vec![
            Change::OwnSource {
                balancer: named("clb"),
            },
            Change::SkipOwnSource {
                balancer: named("clb"),
            },
            Change::HealthCheck {
                balancer: named("clb"),
            },
            Change::SecurityGroup {
                balancer: named("clb"),
            },
            Change::AnotherBackend {
                balancer: named("clb"),
                node: named("node-2"),
            },
            Change::Backend {
                balancer: named("clb"),
                node: named("node-1"),
            },
        ]
    }

    fn all() -> Vec<Change> {
        let mut all = of_nodes();
        all.extend(of_balancers());
        all
    }

    fn of_nodes() -> Vec<Change> {
        vec![
            Change::Policy {
                service: named("default/web"),
                field: PolicyField::ExternalTrafficPolicy,
            },
            Change::Policy {
                service: named("default/web"),
                field: PolicyField::InternalTrafficPolicy,
            },
            Change::ClusterCidr {
                networks: named("10.244.0.0/16"),
            },
            Change::MasqueradeAll,
            Change::ForeignSources,
            Change::ByHand {
                node: named("node-1"),
            },
            Change::Restart {
                node: named("node-1"),
            },
            Change::Sysctl {
                namespaces: vec![named("node-1"), named("node-2")],
                keys: vec![
                    named("net.ipv4.conf.all.rp_filter"),
                    named("net.ipv4.conf.eth0.rp_filter"),
                ],
                value: named("0"),
            },
            Change::Rule {
                namespace: named("node-1"),
                backend: Backend::Nft,
                v6: false,
                table: named("nat"),
                chain: named("POSTROUTING"),
                number: 4,
                rule: named("-d 10.244.2.0/24 -j RETURN"),
            },
            Change::Entry {
                namespace: named("node-1"),
                set: named("KUBE-LOAD-BALANCER-LOCAL"),
                entry: named("192.0.2.1,tcp:80"),
            },
            Change::NativeRule {
                namespace: named("node-1"),
                table: named("ip kube-proxy"),
                chain: named("filter-forward"),
                number: 2,
                rule: named("ip daddr 192.0.2.1 drop"),
            },
            Change::Masqueraded {
                network: "10.0.0.0/8".parse().expect("a network"),
            },
            Change::Route {
                namespace: named("node-1"),
                route: Box::new(route(Some("192.0.2.1"), RouteKind::Unicast)),
            },
            Change::Route {
                namespace: named("node-1"),
                route: Box::new(route(None, RouteKind::Blackhole)),
            },
            Change::NewRoute {
                namespace: named("node-1"),
                route: Box::new(route(Some("192.0.2.1"), RouteKind::Unicast)),
            },
            Change::RoutingRule {
                namespace: named("node-1"),
                rule: Box::new(PolicyRule {
                    priority: 100,
                    v6: false,
                    not: false,
                    from: Some("10.244.1.0/24".parse().expect("a network")),
                    to: None,
                    mark: None,
                    incoming: None,
                    outgoing: None,
                    suppress: None,
                    then: Lookup::Table(7),
                }),
            },
            Change::Element {
                namespace: named("node-1"),
                table: named("ip kube-proxy"),
                set: named("no-endpoint-services"),
                key: named("192.0.2.1 . tcp . 80"),
            },
        ]
    }

    fn finding(cures: &[Vec<Change>], tried: Vec<Tried>) -> Finding {
        let cures = cures.iter().map(|changes| Cure {
            changes: changes.iter().map(Told::from).collect(),
            matters: changes.iter().flat_map(differences).collect(),
        });
        Finding {
            case: named("lab/policy=Local"),
            kernel: named("6.12"),
            wrong: vec![Wrong {
                probe: named("call"),
                after: Some(named("scaled")),
                connected: 1,
                of: 4,
                told: vec![named("SYN was dropped in node-1 by filter FORWARD rule 1")],
                cures: cures.collect(),
            }],
            unasked: vec![named("other"), named("third")],
            tried,
            runs: 7,
        }
    }

    #[test]
    fn each_change_is_told_as_what_an_operator_does() {
        let each: Vec<Vec<Change>> = all().into_iter().map(|change| vec![change]).collect();
        insta::assert_snapshot!(human(&[finding(&each, Vec::new())], false, false));
    }

    #[test]
    fn of_what_nobody_asked_about_that_is_said() {
        let mut finding = finding(&[], Vec::new());
        finding.wrong.clear();
        insta::assert_snapshot!(human(&[finding], false, false));
    }

    #[test]
    fn what_helps_only_together_is_told_together() {
        let pair = all().into_iter().skip(2).take(2).collect();
        insta::assert_snapshot!(human(&[finding(&[pair], Vec::new())], false, false));
    }

    #[test]
    fn where_nothing_helps_all_that_was_tried_is_told() {
        let ran = |connected, worse: &[&str]| Came::Ran {
            probes: vec![Fared {
                probe: named("call"),
                connected,
                of: 4,
            }],
            worse: worse.iter().map(|name| named(name)).collect(),
        };
        let refused = Came::Refused {
            why: named("it is so already"),
        };
        let came = [ran(2, &[]), ran(4, &["other", "third"]), refused];
        let tried = all().into_iter().zip(came).map(|(change, came)| Tried {
            changes: vec![Told::from(&change)],
            came,
        });
        let mut tried: Vec<Tried> = tried.collect();
        let pair = all().into_iter().take(2);
        tried.push(Tried {
            changes: pair.map(|change| Told::from(&change)).collect(),
            came: ran(3, &[]),
        });
        let finding = finding(&[], tried);
        assert!(!finding.is_answered());
        let [short, long] =
            [false, true].map(|verbose| human(std::slice::from_ref(&finding), verbose, false));
        insta::assert_snapshot!(short);
        insta::assert_snapshot!("and_the_pairs_to_who_wants_them", long);
    }
}
