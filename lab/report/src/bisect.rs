//! Renders the result of a bisection as text.

use std::fmt::Write as _;

use svclab_experiment::bisect::document::{Bisection, Purpose, Reached, SaidBy, Trial};
use svclab_experiment::bisect::{Difference, Like};
use svclab_experiment::verify::Times;

/// Renders the result.
#[must_use]
pub fn human(found: &Bisection) -> String {
    let mut text = String::new();
    let over = found.over.as_ref().map_or_else(String::new, |over| {
        format!(", both over {} of {}", over.node, over.case)
    });
    let _ = writeln!(text, "good  {}\nbad   {}{over}", found.good, found.bad);
    let symptom = &found.symptom;
    let _ = writeln!(
        text,
        "{}  {} → {}\n  good  {}\n  bad   {}",
        symptom.probe,
        symptom.from,
        symptom.to,
        seen(&symptom.good),
        seen(&symptom.bad)
    );
    if !symptom.others.is_empty() {
        let _ = writeln!(text, "  others that differ: {}", symptom.others.join(", "));
    }
    text.push('\n');
    if found.breaks == found.cures {
        let title = match found.breaks.len() {
            1 => "Of {n}, one makes the difference: with it good is bad, without it bad is good",
            _ => {
                "Of {n}, these make the difference: with them good is bad, without them bad is good"
            }
        };
        let title = title.replace("{n}", &counted(found.differences));
        listed(&mut text, &title, &found.breaks);
    } else {
        let of = counted(found.differences);
        listed(
            &mut text,
            &format!("Of {of}, good is bad with {}", these(found.breaks.len())),
            &found.breaks,
        );
        listed(
            &mut text,
            &format!("Bad is good without {}", these(found.cures.len())),
            &found.cures,
        );
    }
    if !found.said_by.is_empty() {
        text.push_str(match found.said_by.len() {
            1 => "It is said by this:\n",
            _ => "Some of it is said by each of these:\n",
        });
        for said in &found.said_by {
            text.push_str(&source(said));
        }
        text.push('\n');
    }
    let trials = found.trials.len();
    let _ = writeln!(
        text,
        "{trials} trials in {:.1} s on {}; chance makes this wrong less than {} in a million times",
        f64::from(u32::try_from(found.duration_ms).unwrap_or(u32::MAX)) / 1e3,
        found.kernel,
        found.wrong_in_million.max(1)
    );
    text
}

/// Renders all trials of a bisection, one per line.
#[must_use]
pub fn narrowing(found: &Bisection) -> String {
    let mut text = format!("good  {}\nbad   {}\n", found.good, found.bad);
    let _ = writeln!(
        text,
        "{}, seen in {} on {}\n",
        counted(found.differences),
        found.symptom.probe,
        found.kernel
    );
    for (at, trial) in found.trials.iter().enumerate() {
        let _ = writeln!(text, "{}", line(at + 1, trial, found.differences));
    }
    text
}

/// Renders one trial as a line.
#[must_use]
pub fn line(number: usize, trial: &Trial, differences: usize) -> String {
    let why = match trial.of {
        Purpose::End => "an end",
        Purpose::Narrowing => "narrowing",
        Purpose::Verification => "verification",
    };
    let reached = match trial.reached {
        Reached::Built => "built",
        Reached::Changed => "changed",
        Reached::Not => "refused",
    };
    let like = match trial.like {
        Like::Good => "good",
        Like::Bad => "bad",
        Like::Neither => "neither",
    };
    let seen = match &trial.refused {
        Some(why) => why.clone(),
        None => seen(&trial.seen),
    };
    let words = format!(
        "{number:>3}  {:>5} of {differences} as in bad  {reached:<7}  {like:<7}  {why:<12}  {seen}",
        trial.as_bad
    );
    words.trim_end().to_owned()
}

/// Renders one trial in short form, for progress output.
#[must_use]
pub fn told_shortly(number: usize, trial: &Trial, differences: usize) -> String {
    let like = match trial.like {
        Like::Good => "good",
        Like::Bad => "bad",
        Like::Neither => "neither",
    };
    format!(
        "trial {number}: {like} with {} of {}",
        trial.as_bad,
        counted(differences)
    )
}

/// Renders a document and its differing fields, `-` for good and `+` for bad.
fn source(said: &SaidBy) -> String {
    let mut text = String::new();
    for field in &said.fields {
        let path = if field.path.is_empty() { "" } else { " " };
        let _ = writeln!(text, "  * {}{path}{}", said.document, field.path);
        for (sign, value) in [('-', &field.good), ('+', &field.bad)] {
            if let Some(value) = value {
                let _ = writeln!(text, "    {sign} {value}");
            }
        }
    }
    text
}

fn listed(text: &mut String, title: &str, all: &[Vec<Difference>]) {
    let _ = writeln!(text, "{title}:");
    for together in all {
        for (at, difference) in together.iter().enumerate() {
            let told = difference.to_string();
            for (line, words) in told.lines().enumerate() {
                let sign = if at == 0 && line == 0 { "*" } else { " " };
                let _ = writeln!(text, "  {sign} {words}");
            }
        }
    }
    text.push('\n');
}

fn these(count: usize) -> &'static str {
    if count == 1 {
        "this one"
    } else {
        "these together"
    }
}

fn counted(differences: usize) -> String {
    match differences {
        1 => "1 difference".to_owned(),
        _ => format!("{differences} differences"),
    }
}

fn seen(all: &[Times]) -> String {
    let each = all.iter().map(|times| {
        let words = times.outcome.to_string();
        let (verdict, rest) = words.split_once(' ').unwrap_or((&words, ""));
        format!("{verdict} {} {rest}", times.connections)
            .trim_end()
            .to_owned()
    });
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn a_trial_in_a_few_words() {
        let bad = trial(Purpose::Narrowing, 118, Like::Bad, Vec::new());
        assert_eq!(
            told_shortly(7, &bad, 951),
            "trial 7: bad with 118 of 951 differences"
        );
    }

    use svclab_dump::Owner;
    use svclab_experiment::bisect::document::{Over, SaidField, Shown};
    use svclab_experiment::bisect::{Kind, Level, SCHEMA};
    use svclab_experiment::verify::Outcome;
    use svclab_model::evidence::Verdict;

    fn times(verdict: Verdict, connections: u64, endpoint: Option<&str>) -> Times {
        Times {
            outcome: Outcome {
                endpoint: endpoint.map(str::to_owned),
                source: endpoint.map(|_| "node-1".to_owned()),
                ..Outcome::of(verdict)
            },
            connections,
        }
    }

    fn trial(of: Purpose, as_bad: usize, like: Like, seen: Vec<Times>) -> Trial {
        Trial {
            of,
            as_bad,
            reached: Reached::Changed,
            seen,
            like,
            refused: None,
        }
    }

    /// Returns a bisection in which two differences act together and either of them fixes bad.
    pub fn document() -> Bisection {
        let entry = Difference {
            namespace: "node-1".to_owned(),
            of: Kind::SetEntry,
            place: "ipset BLOCKED".to_owned(),
            good: None,
            bad: Some("10.244.2.10".to_owned()),
            owner: Some(Owner::Component("kube-proxy".to_owned())),
        };
        let rule = Difference {
            of: Kind::Rule,
            place: "iptables filter FORWARD".to_owned(),
            bad: Some("-m set --match-set BLOCKED dst -j DROP".to_owned()),
            owner: None,
            ..entry.clone()
        };
        let well = vec![times(Verdict::Connected, 23, Some("pod/default/web"))];
        let broken = vec![times(Verdict::Timeout, 23, None)];
        let refused = Trial {
            reached: Reached::Not,
            refused: Some("iptables-restore: line 3 failed".to_owned()),
            ..trial(Purpose::Narrowing, 2, Like::Neither, Vec::new())
        };
        Bisection {
            schema: SCHEMA.to_owned(),
            good: "good/iptables-save".to_owned(),
            bad: "bad/iptables-save".to_owned(),
            over: Some(Over {
                case: "lab/case".to_owned(),
                node: "node-1".to_owned(),
            }),
            kernel: "6.12.0".to_owned(),
            symptom: Shown {
                probe: "call".to_owned(),
                from: "pod/default/client".to_owned(),
                to: "10.96.0.10:80".to_owned(),
                by: Level::Verdict,
                good: well.clone(),
                bad: broken.clone(),
                others: vec!["again".to_owned()],
            },
            differences: 12,
            breaks: vec![vec![entry.clone()], vec![rule]],
            cures: vec![vec![entry]],
            said_by: vec![
                SaidBy {
                    document: "Lab".to_owned(),
                    fields: vec![SaidField {
                        path: "spec.kubeProxy.clusterCIDR".to_owned(),
                        good: Some("10.244.0.0/16".to_owned()),
                        bad: None,
                    }],
                },
                SaidBy {
                    document: "Service/default/web".to_owned(),
                    fields: vec![SaidField {
                        path: "spec.externalTrafficPolicy".to_owned(),
                        good: Some("Cluster".to_owned()),
                        bad: Some("Local".to_owned()),
                    }],
                },
                SaidBy {
                    document: "Pod/default/web".to_owned(),
                    fields: vec![SaidField {
                        path: String::new(),
                        good: None,
                        bad: Some("{kind: Pod}".to_owned()),
                    }],
                },
            ],
            trials: vec![
                trial(Purpose::End, 0, Like::Good, well.clone()),
                trial(Purpose::End, 12, Like::Bad, broken),
                refused,
                trial(Purpose::Verification, 11, Like::Good, well),
            ],
            wrong_in_million: 640,
            duration_ms: 1234,
        }
    }

    #[test]
    fn an_answer() {
        insta::assert_snapshot!(human(&document()));
    }

    #[test]
    fn an_answer_of_two_that_both_have_to_go() {
        let mut document = document();
        document.cures = document.breaks.clone();
        document.over = None;
        insta::assert_snapshot!(human(&document));
    }

    #[test]
    fn a_narrowing() {
        insta::assert_snapshot!(narrowing(&document()));
    }
}
