//! Renders the result of a bisection as text.

use std::fmt::Write as _;

use crate::commands::verify::render_outcomes;
use crate::text::terminal::TerminalWidth;
use crate::text::{count, push_wrapped};
use svclab_experiment::LabOrigin;
use svclab_experiment::bisect::document::{Bisection, DeclaredBy, Purpose, SymptomFinding, Trial};
use svclab_experiment::bisect::{Difference, TrialClass};

/// Maximum width of a line.
const WIDTH: usize = 96;

/// Renders the result.
#[must_use]
pub fn render_text(found: &Bisection, width: TerminalWidth) -> String {
    let mut text = String::new();
    let base = found.base.as_ref().map_or_else(String::new, |over| {
        format!(", both replacing {} of {}", over.node, over.case)
    });
    let _ = writeln!(text, "good  {}\nbad   {}{base}", found.good, found.bad);
    push_finding(&mut text, &found.finding);
    for finding in &found.further {
        text.push_str("With the above as in good, another probe still differs.\n");
        push_finding(&mut text, finding);
    }
    if let Some(why) = &found.unexamined {
        let more = format!("Other probes may still differ with the above as in good: {why}");
        push_wrapped(&mut text, "", &more, width.limit(WIDTH));
        text.push('\n');
    }
    if !found.declared_by.is_empty() {
        text.push_str(match found.declared_by.len() {
            1 => "Declared by:\n",
            _ => "Declared in part by each of:\n",
        });
        for declared in &found.declared_by {
            text.push_str(&render_declaration(declared));
        }
        text.push('\n');
    }
    if !found.assumed.is_empty() {
        text.push_str("Assumed of bad, for at least one of the causes:\n");
        for assumption in &found.assumed {
            push_wrapped(&mut text, "  - ", assumption, width.limit(WIDTH));
        }
        text.push('\n');
    }
    if !found.not_tried.is_empty() {
        text.push_str("Not tried, because svclab does not build it:\n");
        for difference in &found.not_tried {
            push_wrapped(&mut text, "  - ", difference, width.limit(WIDTH));
        }
        text.push('\n');
    }
    let trials = found.trials.len();
    let _ = writeln!(
        text,
        "{trials} trials in {:.1} s on {}; error probability below {} in a million",
        f64::from(u32::try_from(found.duration_ms).unwrap_or(u32::MAX)) / 1e3,
        found.kernel,
        found.error_per_million.max(1)
    );
    width.fit(text)
}

/// Renders a symptom and the differences that cause it.
fn push_finding(text: &mut String, found: &SymptomFinding) {
    let symptom = &found.symptom;
    let _ = writeln!(
        text,
        "{}  {} → {}\n  good  {}\n  bad   {}",
        symptom.probe,
        symptom.from,
        symptom.to,
        render_outcomes(&symptom.good),
        render_outcomes(&symptom.bad)
    );
    if !symptom.other_probes.is_empty() {
        let _ = writeln!(
            text,
            "  other probes that differ: {}",
            symptom.other_probes.join(", ")
        );
    }
    text.push('\n');
    if found.breaks == found.fixes {
        let title = match found.breaks.len() {
            1 => "1 of {n} is the culprit: adding it breaks good, removing it fixes bad",
            _ => "Culprits among {n}: adding them breaks good, removing them fixes bad",
        };
        let title = title.replace("{n}", &describe_count(found.differences));
        push_list(text, &title, &found.breaks);
    } else {
        let total = describe_count(found.differences);
        push_list(
            text,
            &format!(
                "Of {total}, adding {} breaks good",
                demonstrative(found.breaks.len())
            ),
            &found.breaks,
        );
        push_list(
            text,
            &format!("Removing {} fixes bad", demonstrative(found.fixes.len())),
            &found.fixes,
        );
    }
}

/// Renders all trials of a bisection, one per line.
#[must_use]
pub fn render_trials(found: &Bisection) -> String {
    let mut text = format!("good  {}\nbad   {}\n", found.good, found.bad);
    let _ = writeln!(
        text,
        "{}, observed with {} on {}\n",
        describe_count(found.finding.differences),
        list_probes(found),
        found.kernel
    );
    for (index, trial) in found.trials.iter().enumerate() {
        let _ = writeln!(text, "{}", render_trial(index + 1, trial));
    }
    text
}

/// Renders one trial as a line.
#[must_use]
pub fn render_trial(number: usize, trial: &Trial) -> String {
    let purpose = match trial.purpose {
        Purpose::Baseline => "baseline",
        Purpose::Narrowing => "narrowing",
        Purpose::Verification => "verification",
    };
    let lab_origin = match trial.lab_origin {
        LabOrigin::Built => "built",
        LabOrigin::Changed => "changed",
        LabOrigin::Refused => "refused",
    };
    let class = class_name(trial.class);
    let outcomes = match &trial.refused {
        Some(why) => why.clone(),
        None => render_outcomes(&trial.outcomes),
    };
    let text = format!(
        "{number:>3}  {:>5} of {} as in bad  {lab_origin:<7}  {class:<7}  {purpose:<12}  {outcomes}",
        trial.as_bad, trial.differences
    );
    text.trim_end().to_owned()
}

/// Renders one trial in short form, for progress output.
#[must_use]
pub fn render_progress(number: usize, trial: &Trial) -> String {
    let class = class_name(trial.class);
    format!(
        "trial {number}: {class} with {} of {}",
        trial.as_bad,
        describe_count(trial.differences)
    )
}

fn list_probes(found: &Bisection) -> String {
    let probes = found.findings().map(|finding| &*finding.symptom.probe);
    probes.collect::<Vec<_>>().join(", then ")
}

const fn class_name(class: TrialClass) -> &'static str {
    match class {
        TrialClass::Good => "good",
        TrialClass::Bad => "bad",
        TrialClass::Neither => "neither",
    }
}

/// Renders a document and its differing fields, `-` for good and `+` for bad.
fn render_declaration(declared: &DeclaredBy) -> String {
    let mut text = String::new();
    for field in &declared.fields {
        let path = if field.path.is_empty() { "" } else { " " };
        let _ = writeln!(text, "  * {}{path}{}", declared.document, field.path);
        for (sign, value) in [('-', &field.good), ('+', &field.bad)] {
            if let Some(value) = value {
                let _ = writeln!(text, "    {sign} {value}");
            }
        }
    }
    text
}

fn push_list(text: &mut String, title: &str, differences: &[Vec<Difference>]) {
    let _ = writeln!(text, "{title}:");
    for together in differences {
        for (index, difference) in together.iter().enumerate() {
            let rendered = difference.to_string();
            for (line, words) in rendered.lines().enumerate() {
                let sign = if index == 0 && line == 0 { "*" } else { " " };
                let _ = writeln!(text, "  {sign} {words}");
            }
        }
    }
    text.push('\n');
}

fn demonstrative(count: usize) -> &'static str {
    if count == 1 {
        "this one"
    } else {
        "these together"
    }
}

fn describe_count(differences: usize) -> String {
    count(differences, "difference", "differences")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn render_progress_trial_is_short() {
        let bad = trial(Purpose::Narrowing, 8, TrialClass::Bad, Vec::new());
        assert_eq!(
            render_progress(7, &bad),
            "trial 7: bad with 8 of 12 differences"
        );
    }

    use svclab_dump::Owner;
    use svclab_experiment::bisect::document::{BaseCase, DeclaredField, SymptomReport};
    use svclab_experiment::bisect::{Kind, OutcomeDetail, SCHEMA};
    use svclab_experiment::{ConnectionOutcome, OutcomeCount};
    use svclab_model::evidence::Verdict;

    fn times(verdict: Verdict, connections: u64, endpoint: Option<&str>) -> OutcomeCount {
        OutcomeCount {
            outcome: ConnectionOutcome {
                endpoint: endpoint.map(str::to_owned),
                source: endpoint.map(|_| "node-1".to_owned()),
                ..ConnectionOutcome::from_verdict(verdict)
            },
            connections,
        }
    }

    fn trial(purpose: Purpose, as_bad: usize, like: TrialClass, seen: Vec<OutcomeCount>) -> Trial {
        Trial {
            purpose,
            as_bad,
            differences: 12,
            lab_origin: LabOrigin::Changed,
            outcomes: seen,
            class: like,
            refused: None,
        }
    }

    /// Returns a bisection in which two differences act together and either of them fixes bad.
    pub fn document() -> Bisection {
        let entry = Difference {
            namespace: "node-1".to_owned(),
            kind: Kind::SetEntry,
            location: "ipset BLOCKED".to_owned(),
            good: None,
            bad: Some("10.244.2.10".to_owned()),
            owner: Some(Owner::Component("kube-proxy".to_owned())),
        };
        let rule = Difference {
            kind: Kind::Rule,
            location: "iptables filter FORWARD".to_owned(),
            bad: Some("-m set --match-set BLOCKED dst -j DROP".to_owned()),
            owner: None,
            ..entry.clone()
        };
        let good_outcomes = vec![times(Verdict::Connected, 23, Some("pod/default/web"))];
        let broken = vec![times(Verdict::Timeout, 23, None)];
        let refused = Trial {
            lab_origin: LabOrigin::Refused,
            refused: Some("iptables-restore: line 3 failed".to_owned()),
            ..trial(Purpose::Narrowing, 2, TrialClass::Neither, Vec::new())
        };
        Bisection {
            schema: SCHEMA.to_owned(),
            good: "good/iptables-save".to_owned(),
            bad: "bad/iptables-save".to_owned(),
            base: Some(BaseCase {
                case: "lab/case".to_owned(),
                node: "node-1".to_owned(),
            }),
            kernel: "6.12.0".to_owned(),
            finding: SymptomFinding {
                symptom: SymptomReport {
                    probe: "call".to_owned(),
                    from: "pod/default/client".to_owned(),
                    to: "10.96.0.10:80".to_owned(),
                    detail: OutcomeDetail::Verdict,
                    good: good_outcomes.clone(),
                    bad: broken.clone(),
                    other_probes: vec!["again".to_owned()],
                },
                differences: 12,
                breaks: vec![vec![entry.clone()], vec![rule]],
                fixes: vec![vec![entry]],
            },
            further: Vec::new(),
            unexamined: None,
            assumed: vec!["next hop 10.0.0.77 on eth0 of node-1 does not reply".to_owned()],
            not_tried: Vec::new(),
            declared_by: vec![
                DeclaredBy {
                    document: "Lab".to_owned(),
                    fields: vec![DeclaredField {
                        path: "spec.kubeProxy.clusterCIDR".to_owned(),
                        good: Some("10.244.0.0/16".to_owned()),
                        bad: None,
                    }],
                },
                DeclaredBy {
                    document: "Service/default/web".to_owned(),
                    fields: vec![DeclaredField {
                        path: "spec.externalTrafficPolicy".to_owned(),
                        good: Some("Cluster".to_owned()),
                        bad: Some("Local".to_owned()),
                    }],
                },
                DeclaredBy {
                    document: "Pod/default/web".to_owned(),
                    fields: vec![DeclaredField {
                        path: String::new(),
                        good: None,
                        bad: Some("{kind: Pod}".to_owned()),
                    }],
                },
            ],
            trials: vec![
                trial(
                    Purpose::Baseline,
                    0,
                    TrialClass::Good,
                    good_outcomes.clone(),
                ),
                trial(Purpose::Baseline, 12, TrialClass::Bad, broken),
                refused,
                trial(Purpose::Verification, 11, TrialClass::Good, good_outcomes),
            ],
            error_per_million: 640,
            duration_ms: 1234,
        }
    }

    #[test]
    fn render_text_bisection_matches_snapshot() {
        insta::assert_snapshot!(render_text(&document(), TerminalWidth::default()));
    }

    #[test]
    fn render_text_joint_culprits_match_snapshot() {
        let mut document = document();
        document.finding.fixes = document.finding.breaks.clone();
        document.base = None;
        insta::assert_snapshot!(render_text(&document, TerminalWidth::default()));
    }

    #[test]
    fn render_text_further_symptom_matches_snapshot() {
        let mut document = document();
        let mut further = document.finding.clone();
        further.symptom.probe = "again".to_owned();
        further.symptom.other_probes = Vec::new();
        further.differences = 11;
        further.breaks = further.breaks.split_off(1);
        further.fixes = further.breaks.clone();
        document.further = vec![further];
        document.declared_by = Vec::new();
        document.unexamined = Some("cannot build bad/iptables-save: line 3 failed".to_owned());
        insta::assert_snapshot!(render_text(&document, TerminalWidth::default()));
    }

    #[test]
    fn render_trials_bisection_matches_snapshot() {
        insta::assert_snapshot!(render_trials(&document()));
    }
}
