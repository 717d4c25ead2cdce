//! What a comparison of two kube-proxies came to, for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use super::diff::Document;
use super::refused;
use super::words::{indented, seconds, wrap};
use crate::verify::{Changed, NotCompared, Ran, RulesDiffer, SideOf, Times, Verification};

/// Who is who in it.
const BEFORE: &str = "against";
const NOW: &str = "new";

/// How many cases a line names before it only counts them.
const NAMED: usize = 3;

/// As text: what differs, what could not be compared, and the whole in a line. Where
/// rules differ is told whole to those who want it `verbose`.
#[must_use]
pub fn human(of: &Verification, verbose: bool, colour: bool) -> String {
    let mut text = String::new();
    for changed in &of.changed {
        tell_changed(&mut text, changed, colour);
    }
    for failed in &of.failed {
        let side = match failed.side {
            SideOf::Against => BEFORE,
            SideOf::New => NOW,
        };
        let head = painted("ERROR", AnsiColor::Red, colour);
        let _ = writeln!(text, "{head} {} ({side})", failed.case);
        text.push_str(&indented(&failed.error.message));
        if let Some(remedy) = &failed.error.remedy {
            text.push_str(&indented(&format!("what to do: {remedy}")));
        }
    }
    tell_rules(&mut text, &of.rules, verbose, colour);
    for not in &of.not_compared {
        tell_not_compared(&mut text, not);
    }
    for (side, who) in [(BEFORE, &of.against), (NOW, &of.new)] {
        let _ = writeln!(text, "{side:<8} {}", ran(who));
        for line in refused::lines(&who.refused, 0) {
            let _ = writeln!(text, "         {}: {line}", refused::LABEL);
        }
    }
    let _ = writeln!(text, "{}", whole(of));
    text
}

fn tell_changed(text: &mut String, changed: &Changed, colour: bool) {
    let flow = &changed.flow;
    let head = painted("CHANGED", AnsiColor::Red, colour);
    let _ = writeln!(text, "{head} {}  (Linux {})", flow.case, flow.kernel);
    let _ = writeln!(text, "  {}  {} → {}", flow.probe, flow.from, flow.to);
    for (side, times) in [(BEFORE, &changed.against), (NOW, &changed.new)] {
        let _ = writeln!(text, "    {side:<8} {}", outcomes(times));
    }
    if let Some(chance) = 1_000_000_000_u64.checked_div(changed.chance_in_billion) {
        let _ = writeln!(text, "    by chance it would look so 1 time in {chance}");
    }
    for (side, met) in [(BEFORE, &changed.met.against), (NOW, &changed.met.new)] {
        if met.is_empty() {
            continue;
        }
        let _ = writeln!(text, "    met only with `{side}`:");
        for step in met {
            let _ = writeln!(text, "      {step}");
        }
    }
}

fn outcomes(times: &[Times]) -> String {
    let each = times.iter().map(|times| {
        let (outcome, count) = (&times.outcome, times.connections);
        let rest = outcome.to_string();
        let verdict = outcome.verdict.word();
        format!("{verdict} {count}{}", &rest[verdict.len()..])
    });
    each.collect::<Vec<_>>().join(", ")
}

fn tell_rules(text: &mut String, rules: &[RulesDiffer], verbose: bool, colour: bool) {
    if verbose {
        for differ in rules {
            let document = Document::new(
                format!("{} of {} ({BEFORE})", differ.node, differ.case),
                format!("{} of {} ({NOW})", differ.node, differ.case),
                Vec::new(),
                differ.differences.clone(),
            );
            text.push_str(&document.human(colour));
            text.push('\n');
        }
    }
    if rules.is_empty() {
        return;
    }
    let mut cases: BTreeMap<&str, usize> = BTreeMap::new();
    for differ in rules {
        *cases.entry(&differ.case).or_default() += differ.differences.len();
    }
    let all: usize = cases.values().sum();
    let named: Vec<&str> = cases.keys().copied().collect();
    let line = format!(
        "rules differ in {all} places of {}{}",
        few(&named),
        if verbose {
            ""
        } else {
            "; --verbose prints them"
        }
    );
    let _ = writeln!(text, "{line}");
}

fn tell_not_compared(text: &mut String, not: &NotCompared) {
    let cases: Vec<&str> = not.cases.iter().map(String::as_str).collect();
    let line = format!("not compared: {}: {}", few(&cases), not.because);
    for (at, line) in wrap(&line, 96).into_iter().enumerate() {
        let indent = if at == 0 { "" } else { "  " };
        let _ = writeln!(text, "{indent}{line}");
    }
}

/// Some by name, and how many more.
fn few(names: &[&str]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let first = names[..names.len() - more].join(", ");
    match more {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn ran(ran: &Ran) -> String {
    let what = match &ran.program {
        Some(program) => format!("{program}, {}", ran.version),
        None => format!("the rules of {} as svclab generates them", ran.version),
    };
    match &ran.sync {
        Some(sync) => format!(
            "{what}: rules after {} ({} to {}, {} times)",
            seconds(sync.median_ms),
            seconds(sync.least_ms),
            seconds(sync.most_ms),
            sync.proxies
        ),
        None => what,
    }
}

fn whole(of: &Verification) -> String {
    if of.cases == 0 && of.failed.is_empty() && !of.interrupted {
        return "nothing was compared".to_owned();
    }
    let changed = match of.changed.len() {
        0 => "none goes elsewhere".to_owned(),
        1 => "1 goes elsewhere".to_owned(),
        more => format!("{more} go elsewhere"),
    };
    let failed = match of.failed.len() {
        0 => String::new(),
        1 => "; 1 case came to no result".to_owned(),
        more => format!("; {more} cases came to no result"),
    };
    let interrupted = if of.interrupted { "; interrupted" } else { "" };
    format!(
        "{} flows of {} cases: {changed}{failed}{interrupted}",
        of.flows, of.cases
    )
}

fn painted(word: &str, colour: AnsiColor, wanted: bool) -> String {
    if wanted {
        let style: Style = colour.on_default();
        format!("{style}{word}{style:#}")
    } else {
        word.to_owned()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::evidence::Verdict;
    use crate::report::{RunError, Trouble};
    use crate::verify::{Failed, Flow, OnlyMet, Outcome, SCHEMA, Sync};

    fn times(verdict: Verdict, endpoint: Option<&str>, connections: u64) -> Times {
        Times {
            outcome: Outcome {
                verdict,
                endpoint: endpoint.map(str::to_owned),
                source: endpoint.map(|_| "host/laptop".to_owned()),
            },
            connections,
        }
    }

    /// One with something of each kind.
    pub fn document() -> Verification {
        Verification {
            schema: SCHEMA.to_owned(),
            against: Ran {
                program: None,
                version: "v1.20".to_owned(),
                sync: None,
                refused: Vec::new(),
            },
            new: Ran {
                program: Some("/tmp/kube-proxy".to_owned()),
                version: "v1.20.2".to_owned(),
                sync: Sync::of(vec![310, 1200, 455]),
                refused: crate::report::fixture::refused(),
            },
            cases: 40,
            flows: 312,
            changed: vec![Changed {
                flow: Flow {
                    case: "node-port/policy=Cluster".to_owned(),
                    kernel: "6.18.44".to_owned(),
                    probe: "call".to_owned(),
                    from: "host/laptop".to_owned(),
                    to: "node-1:30080".to_owned(),
                },
                against: vec![times(Verdict::Connected, Some("pod/default/web"), 16)],
                new: vec![
                    times(Verdict::Connected, Some("pod/default/web"), 2),
                    times(Verdict::Timeout, None, 14),
                ],
                met: OnlyMet {
                    against: vec![
                        "node-1: nat KUBE-POSTROUTING: -j MASQUERADE --random-fully".to_owned(),
                    ],
                    new: Vec::new(),
                },
                chance_in_billion: 2_500,
            }],
            rules: vec![RulesDiffer {
                case: "node-port/policy=Local".to_owned(),
                node: "node-1".to_owned(),
                differences: Vec::new(),
            }],
            failed: vec![Failed {
                case: "local-ingress".to_owned(),
                side: SideOf::New,
                error: RunError {
                    trouble: Trouble::Input,
                    message: "the kube-proxy of node-1 ended".to_owned(),
                    remedy: Some("give the path of a kube-proxy".to_owned()),
                },
            }],
            not_compared: vec![NotCompared {
                cases: ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec(),
                because: "no flag tells a kube-proxy of `bindLoadBalancerIPs`".to_owned(),
            }],
            interrupted: false,
        }
    }

    #[test]
    fn what_differs_is_told() {
        insta::assert_snapshot!(human(&document(), false, false));
    }

    #[test]
    fn nothing_is_told_of_what_is_alike() {
        let alike = Verification {
            changed: Vec::new(),
            rules: Vec::new(),
            failed: Vec::new(),
            not_compared: Vec::new(),
            ..document()
        };
        insta::assert_snapshot!(human(&alike, true, false));
        assert_eq!(alike.exit_code(), 0);
        assert_eq!(document().exit_code(), 1);
    }
}
