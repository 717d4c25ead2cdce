//! Renders the result of a verification as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use indexmap::IndexSet;

use crate::commands::diff::Document;
use crate::text::{count, join, list_first, push_hanging, refused, render_seconds, with_colour};
use svclab_experiment::OutcomeCount;
use svclab_experiment::verify::{
    ChangedFlow, FlowShift, NotCompared, RulesDiffer, Share, SharesDiffer, ShiftTimes, SideInfo,
    SideName, Verification,
};

/// Labels of the two sides.
const AGAINST: &str = "against";
const NEW: &str = "new";

/// Maximum width of sentences, in columns.
const WIDTH: usize = 98;

const HEAD: Style = AnsiColor::Red.on_default();

/// Renders the differences, what was not compared, and a summary line. With `verbose`, also the
/// differences of rules and the traffic shifts after each step.
#[must_use]
pub fn render_text(verification: &Verification, verbose: bool, colour: bool) -> String {
    let mut text = String::new();
    for changed in &verification.changed {
        push_changed(&mut text, changed);
    }
    for differ in &verification.shares {
        push_shares(&mut text, differ);
    }
    for failed in &verification.failed {
        let side = match failed.side {
            SideName::Against => AGAINST,
            SideName::New => NEW,
        };
        let _ = writeln!(text, "{HEAD}ERROR{HEAD:#} {} ({side})", failed.case);
        text.push_str(&indent_lines(&failed.error.message));
        if let Some(remedy) = &failed.error.remedy {
            text.push_str(&indent_lines(&format!("help: {remedy}")));
        }
    }
    push_rules(&mut text, &verification.rules, verbose);
    if verbose {
        push_shifts(&mut text, &verification.shifts);
    }
    for skipped in &verification.not_compared {
        push_not_compared(&mut text, skipped);
    }
    for (side, side_info) in [(AGAINST, &verification.against), (NEW, &verification.new)] {
        let _ = writeln!(text, "{side:<8} {}", render_side(side_info));
        for line in refused::render_lines(&side_info.refused, 0) {
            let _ = writeln!(text, "         {}: {line}", refused::LABEL);
        }
    }
    let _ = writeln!(text, "{}", render_summary(verification));
    with_colour(text, colour)
}

/// Indents each line by two spaces and terminates it.
fn indent_lines(text: &str) -> String {
    text.lines()
        .fold(String::new(), |text, line| text + "  " + line + "\n")
}

fn push_changed(text: &mut String, changed: &ChangedFlow) {
    let flow = &changed.flow;
    let _ = writeln!(
        text,
        "{HEAD}CHANGED{HEAD:#} {}  (Linux {})",
        flow.case, flow.kernel
    );
    let step = flow.step.iter().map(|step| format!("{step}/"));
    let name = step.chain([flow.probe.clone()]).collect::<String>();
    let _ = writeln!(text, "  {name}  {} → {}", flow.from, flow.to);
    for (side, times) in [(AGAINST, &changed.against), (NEW, &changed.new)] {
        let _ = writeln!(text, "    {side:<8} {}", render_outcomes(times));
    }
    push_error_probability(text, changed.error_per_billion);
    for (side, met) in [
        (AGAINST, &changed.matches.against),
        (NEW, &changed.matches.new),
    ] {
        if met.is_empty() {
            continue;
        }
        let _ = writeln!(text, "    matched only with `{side}`:");
        for step in met {
            let _ = writeln!(text, "      {step}");
        }
    }
}

fn push_error_probability(text: &mut String, in_billion: u64) {
    if let Some(chance) = 1_000_000_000_u64.checked_div(in_billion) {
        let _ = writeln!(text, "    error probability: 1 in {chance}");
    }
}

fn push_shares(text: &mut String, differ: &SharesDiffer) {
    let _ = writeln!(
        text,
        "{HEAD}CHANGED{HEAD:#} shares of {}  ({} mode)",
        differ.service, differ.modes
    );
    let flows = count(differ.flows, "flow", "flows");
    let _ = writeln!(text, "  {flows} of {}", list_first(&differ.cases));
    let unit = if differ.by_client {
        "clients"
    } else {
        "connections"
    };
    for (side, shares) in [(AGAINST, &differ.against), (NEW, &differ.new)] {
        let total: u64 = shares.iter().map(|share| share.draws).sum();
        let shares = shares.iter().map(|share| render_share(share, total));
        let _ = writeln!(
            text,
            "    {side:<8} {} of {total} {unit}",
            join(shares, ", ")
        );
    }
    push_error_probability(text, differ.error_per_billion);
}

fn render_share(share: &Share, total: u64) -> String {
    let endpoint = share.endpoint.as_deref().unwrap_or("no endpoint");
    let per_mille = share.draws * 1000 / total.max(1);
    format!("{endpoint} {}.{} %", per_mille / 10, per_mille % 10)
}

/// Renders the outcomes of connections with their counts: `connected 2 pod/default/web, timeout 14`.
pub(crate) fn render_outcomes(times: &[OutcomeCount]) -> String {
    let each = times.iter().map(|times| {
        let (outcome, count) = (&times.outcome, times.connections);
        let rest = outcome.to_string();
        let verdict = outcome.verdict.name();
        format!("{verdict} {count}{}", &rest[verdict.len()..])
    });
    join(each, ", ")
}

fn push_rules(text: &mut String, rules: &[RulesDiffer], verbose: bool) {
    if verbose {
        for differ in rules {
            let document = Document::new(
                format!("{} of {} ({AGAINST})", differ.node, describe_stage(differ)),
                format!("{} of {} ({NEW})", differ.node, describe_stage(differ)),
                Vec::new(),
                differ.differences.clone(),
            );
            text.push_str(&document.render_text(true));
            text.push('\n');
        }
    }
    if rules.is_empty() {
        return;
    }
    let mut cases: BTreeMap<String, usize> = BTreeMap::new();
    for differ in rules {
        *cases.entry(describe_stage(differ)).or_default() += differ.differences.len();
    }
    let total: usize = cases.values().sum();
    let line = format!(
        "rules differ in {} in {}{}",
        count(total, "place", "places"),
        list_first(cases.keys()),
        if verbose {
            ""
        } else {
            "; --verbose prints them"
        }
    );
    let _ = writeln!(text, "{line}");
}

/// Describes the case and the step, if any, after which the rules differ.
fn describe_stage(differ: &RulesDiffer) -> String {
    match &differ.step {
        Some(step) => format!("{} after {step}", differ.case),
        None => differ.case.clone(),
    }
}

/// Adds the traffic shifts, step by step.
fn push_shifts(text: &mut String, shifts: &[FlowShift]) {
    let render_shift = |us: Option<u64>| us.map_or_else(|| "not seen".to_owned(), render_duration);
    for steps in shifts.chunk_by(|a, b| (&a.case, &a.step) == (&b.case, &b.step)) {
        let Some(first) = steps.first() else { continue };
        let _ = writeln!(
            text,
            "traffic moved in {} after {}:",
            first.case, first.step
        );
        for moved in steps {
            let (against, new) = (render_shift(moved.against_us), render_shift(moved.new_us));
            let probe = &moved.probe;
            let _ = writeln!(text, "  {probe}  {against} ({AGAINST}), {new} ({NEW})");
        }
    }
}

fn render_duration(us: u64) -> String {
    svclab_judge::render_duration(Duration::from_micros(us))
}

fn push_not_compared(text: &mut String, skipped: &NotCompared) {
    let from = match &skipped.from_step {
        Some(step) => format!(" from step {step} on"),
        None => String::new(),
    };
    let line = format!(
        "not compared: {}{from}: {}",
        list_first(&skipped.cases),
        skipped.reason
    );
    push_hanging(text, "", "  ", &line, WIDTH);
}

fn render_side(side_info: &SideInfo) -> String {
    let rules = match &side_info.program {
        Some(program) => format!("{program}, {}", side_info.version),
        None => format!("rules of {} generated by svclab", side_info.version),
    };
    let sync = side_info.sync.as_ref().map(|sync| {
        format!(
            ": rules complete after {} ({} to {}, {})",
            render_seconds(sync.median_ms),
            render_seconds(sync.min_ms),
            render_seconds(sync.max_ms),
            count(sync.proxies, "time", "times")
        )
    });
    let moving = side_info
        .shift_times
        .as_ref()
        .map(|moving| render_shift_times(moving, side_info));
    [Some(rules), sync, moving].into_iter().flatten().collect()
}

/// Renders the times of traffic shifts. Generated rules are changed by svclab itself.
fn render_shift_times(moving: &ShiftTimes, side_info: &SideInfo) -> String {
    let prefix = match side_info.program {
        Some(_) => "; traffic moved after",
        None => "; changes by svclab moved traffic after",
    };
    format!(
        "{prefix} {} ({} to {}, {})",
        render_duration(moving.median_us),
        render_duration(moving.min_us),
        render_duration(moving.max_us),
        count(moving.flows, "time", "times")
    )
}

fn render_summary(verification: &Verification) -> String {
    if verification.cases == 0 && verification.failed.is_empty() && !verification.interrupted {
        return "nothing was compared".to_owned();
    }
    let names: IndexSet<&String> = verification
        .failed
        .iter()
        .map(|failed| &failed.case)
        .collect();
    let changed = match (verification.changed.len(), names.len()) {
        (0, 0) => "no flow changed".to_owned(),
        (0, _) => format!("not compared: {}", list_first(&names)),
        (changed, _) => format!("{changed} changed"),
    };
    let mut text = format!(
        "{} of {}: {changed}",
        count(verification.flows, "flow", "flows"),
        count(verification.cases, "case", "cases")
    );
    if !verification.shares.is_empty() {
        let services = count(verification.shares.len(), "service has", "services have");
        let _ = write!(text, "; {services} different shares");
    }
    if !verification.changed.is_empty() && !names.is_empty() {
        let _ = write!(
            text,
            "; {} no result",
            count(names.len(), "case has", "cases have")
        );
    }
    if verification.interrupted {
        text += "; interrupted";
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use svclab_dump::{Difference, DumpChange, DumpLocation, Side};
    use svclab_experiment::ConnectionOutcome;
    use svclab_experiment::verify::{FailedCase, FlowId, OneSidedMatches, SCHEMA, SyncTimes};
    use svclab_model::evidence::Verdict;
    use svclab_runner::results::{ErrorKind, RunError};

    fn times(verdict: Verdict, endpoint: Option<&str>, connections: u64) -> OutcomeCount {
        OutcomeCount {
            outcome: ConnectionOutcome {
                verdict,
                endpoint: endpoint.map(str::to_owned),
                source: endpoint.map(|_| "host/laptop".to_owned()),
                initial_endpoint: None,
            },
            connections,
        }
    }

    fn before_steps() -> ChangedFlow {
        ChangedFlow {
            flow: FlowId {
                case: "node-port/policy=Cluster".to_owned(),
                kernel: "6.18.44".to_owned(),
                step: None,
                probe: "call".to_owned(),
                from: "host/laptop".to_owned(),
                to: "node-1:30080".to_owned(),
            },
            against: vec![times(Verdict::Connected, Some("pod/default/web"), 16)],
            new: vec![
                times(Verdict::Connected, Some("pod/default/web"), 2),
                times(Verdict::Timeout, None, 14),
            ],
            matches: OneSidedMatches {
                against: vec![
                    "node-1: nat KUBE-POSTROUTING: -j MASQUERADE --random-fully".to_owned(),
                ],
                new: Vec::new(),
            },
            error_per_billion: 2_500,
        }
    }

    fn in_a_step() -> ChangedFlow {
        let mut moved = times(Verdict::Answered, Some("pod/default/web-b"), 17);
        moved.outcome.initial_endpoint = Some("pod/default/web-a".to_owned());
        let mut lost = times(Verdict::Silent, None, 1);
        lost.outcome.initial_endpoint = Some("pod/default/web-a".to_owned());
        ChangedFlow {
            flow: FlowId {
                case: "service-changes".to_owned(),
                kernel: "6.18.44".to_owned(),
                step: Some("oneLeaves".to_owned()),
                probe: "askAsOneLeaves".to_owned(),
                from: "host/laptop".to_owned(),
                to: "service/default/web:53".to_owned(),
            },
            against: vec![
                times(Verdict::Answered, Some("pod/default/web-a"), 15),
                times(Verdict::Answered, Some("pod/default/web-b"), 17),
            ],
            new: vec![
                times(Verdict::Answered, Some("pod/default/web-b"), 14),
                moved,
                lost,
            ],
            matches: OneSidedMatches::default(),
            error_per_billion: 0,
        }
    }

    fn shares_differ() -> SharesDiffer {
        let shares = |all: [(&str, u64); 2]| {
            let share = |(endpoint, draws): (&str, u64)| Share {
                endpoint: Some(format!("pod/default/{endpoint}")),
                draws,
            };
            all.map(share).to_vec()
        };
        SharesDiffer {
            service: "service/default/web:80".to_owned(),
            modes: "iptables".to_owned(),
            cases: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
            flows: 9,
            by_client: false,
            against: shares([("web-a", 1_201), ("web-b", 1_187)]),
            new: shares([("web-a", 797), ("web-b", 1_591)]),
            error_per_billion: 0,
        }
    }

    fn missing(rule: &str) -> Difference {
        Difference {
            location: DumpLocation::Chain {
                program: "iptables-save".to_owned(),
                table: "nat".to_owned(),
                chain: rule.split(' ').nth(1).unwrap_or_default().to_owned(),
            },
            change: DumpChange::Item {
                only: Side::First,
                item: rule.to_owned(),
                line: 7,
            },
            owner: None,
        }
    }

    fn traffic(step: &str, probe: &str, against_us: Option<u64>, new_us: Option<u64>) -> FlowShift {
        FlowShift {
            case: "service-changes".to_owned(),
            step: step.to_owned(),
            probe: probe.to_owned(),
            against_us,
            new_us,
        }
    }

    /// Returns a verification with results of every kind.
    pub fn document() -> Verification {
        Verification {
            schema: SCHEMA.to_owned(),
            against: SideInfo {
                program: None,
                version: "v1.20".to_owned(),
                sync: None,
                shift_times: ShiftTimes::from_times(vec![7_400, 12_000]),
                refused: Vec::new(),
            },
            new: SideInfo {
                program: Some("/tmp/kube-proxy".to_owned()),
                version: "v1.20.2".to_owned(),
                sync: SyncTimes::from_times(vec![310, 1200, 455]),
                shift_times: ShiftTimes::from_times(vec![93_000, 78_200, 1_204_000]),
                refused: svclab_runner::results::fixture::unserved_requests(),
            },
            cases: 40,
            flows: 312,
            changed: vec![before_steps(), in_a_step()],
            shares: vec![shares_differ()],
            rules: vec![
                RulesDiffer {
                    case: "node-port/policy=Local".to_owned(),
                    step: None,
                    node: "node-1".to_owned(),
                    differences: vec![missing("-A KUBE-FORWARD -j ACCEPT")],
                },
                RulesDiffer {
                    case: "service-changes".to_owned(),
                    step: Some("oneLeaves".to_owned()),
                    node: "node-1".to_owned(),
                    differences: vec![missing("-A KUBE-SVC-A -j KUBE-SEP-B")],
                },
            ],
            shifts: vec![
                traffic("oneComes", "callBoth", Some(7_400), Some(78_200)),
                traffic("oneLeaves", "callStaying", Some(12_000), Some(93_000)),
                traffic("oneLeaves", "askStaying", None, Some(1_204_000)),
            ],
            failed: vec![FailedCase {
                case: "local-ingress".to_owned(),
                side: SideName::New,
                error: RunError {
                    kind: ErrorKind::Input,
                    message: "the kube-proxy of node-1 ended".to_owned(),
                    remedy: Some("give the path of a kube-proxy".to_owned()),
                },
            }],
            not_compared: vec![
                NotCompared {
                    cases: ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec(),
                    from_step: None,
                    reason: "kube-proxy has no flag for `bindLoadBalancerIPs`".to_owned(),
                },
                NotCompared {
                    cases: vec!["service-changes/mode=ipvs".to_owned()],
                    from_step: Some("oneLeaves".to_owned()),
                    reason: "the step `oneLeaves` changes IPVS virtual servers in node-1, which \
                              breaks their connections"
                        .to_owned(),
                },
            ],
            interrupted: false,
        }
    }

    #[test]
    fn render_text_differences_match_snapshot() {
        insta::assert_snapshot!(render_text(&document(), false, false));
    }

    #[test]
    fn render_text_verbose_matches_snapshot() {
        insta::assert_snapshot!(render_text(&document(), true, false));
    }

    #[test]
    fn render_text_equal_sides_match_snapshot() {
        let alike = Verification {
            changed: Vec::new(),
            shares: Vec::new(),
            rules: Vec::new(),
            shifts: Vec::new(),
            failed: Vec::new(),
            not_compared: Vec::new(),
            ..document()
        };
        insta::assert_snapshot!(render_text(&alike, true, false));
    }
}
