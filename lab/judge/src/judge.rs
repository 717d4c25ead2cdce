//! Compares the evidence of a case with its expectations. Output: a [`Judgement`].

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::book::Book;
use super::check::Check;
use super::claim::{ClaimOutcome, ClaimVerdict};
use super::moved::{Change, StepOutcome};
use super::probe::{self, ProbeOutcome};
use super::{doubtful, held, resent, rule, tables};
use svclab_diagnostic::suggest::did_you_mean;
use svclab_journey::Frame;
use svclab_model::evidence::{Attempt, Evidence, Held};
use svclab_model::plan::{Plan, Probe as PlannedProbe, Protocol};
use svclab_planner::cluster::{Cluster, NameError, Problem, place};
use svclab_scenario::expectation::{Expected, ProbeExpectation, Row, StepExpectation};
use svclab_scenario::lab::{LabSpec, Probe};
use svclab_scenario::tree::Step;
use svclab_scenario::wire::{Overlay, Peer, Sight, WireExpectation};

/// Prefixes of the counter names in `/proc/net/netstat` and `/proc/net/snmp`.
const COUNTER_GROUPS: [&str; 8] = [
    "TcpExt", "IpExt", "MPTcpExt", "Ip", "IcmpMsg", "Icmp", "Tcp", "Udp",
];

/// Result of a case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Judgement {
    /// Results of all probes, with or without expectations.
    pub probes: Vec<ProbeOutcome>,
    /// Results of expectations about packets on interfaces.
    pub wire: Vec<Check>,
    /// Results of expectations about counters.
    pub counters: Vec<Check>,
    /// Results of expectations about rules and chains.
    pub rules: Vec<Check>,
    /// Results of expectations about sets, virtual servers and interfaces.
    pub held: Vec<Check>,
    /// Traffic shifts after each step.
    pub steps: Vec<StepOutcome>,
    /// Results for claims.
    pub claims: Vec<ClaimOutcome>,
    /// Description of a failed expectation that a busy machine may explain; `None` if there is
    /// none.
    pub doubtful: Option<String>,
}

impl Judgement {
    /// Whether all expectations hold.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.probes.iter().all(|probe| probe.holds)
            && self.checks().all(|check| check.holds)
            && self.steps.iter().all(|step| step.holds)
    }

    /// Returns all checks except those of probes.
    pub fn checks(&self) -> impl Iterator<Item = &Check> {
        self.wire
            .iter()
            .chain(&self.counters)
            .chain(&self.rules)
            .chain(&self.held)
    }
}

/// Cluster and plan at one stage of a case.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// Cluster at this stage.
    pub cluster: &'a Cluster,
    /// Plan of the namespaces and probes at this stage.
    pub plan: &'a Plan,
}

/// Input of a judge: one case.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    /// Stage 0, with the plan that was run.
    pub first: Moment<'a>,
    /// Stages after each step.
    pub after: Vec<Moment<'a>>,
    /// Lab document.
    pub spec: &'a LabSpec,
    /// Expectations of the case.
    pub row: &'a Row,
    /// Index of the expectations in the lab's list, from 0.
    pub row_at: usize,
}

/// Judge of one case, with all names in its expectations resolved.
#[derive(Debug)]
pub struct Judge<'a> {
    book: Book<'a>,
    /// Address books after each step.
    books: Vec<Book<'a>>,
    subject: Subject<'a>,
    plan: &'a Plan,
    row: &'a Row,
}

impl<'a> Judge<'a> {
    /// Creates the judge of one case.
    ///
    /// # Errors
    ///
    /// Returns a problem for each unknown name in the expectations.
    pub fn new(subject: Subject<'a>) -> Result<Self, Vec<Problem>> {
        let book = |moment: &Moment<'a>| Book::new(moment.cluster, moment.plan);
        let (row, row_at) = (subject.row, subject.row_at);
        let judge = Self {
            book: book(&subject.first),
            books: subject.after.iter().map(book).collect(),
            plan: subject.first.plan,
            row,
            subject,
        };
        let mut problems = Vec::new();
        judge.check_names(
            &row.expected,
            &place!["spec", "expect", row_at],
            &mut problems,
        );
        for (at, claim) in row.claims.iter().enumerate() {
            if let Some(says) = &claim.says {
                judge.check_names(
                    says,
                    &place!["spec", "expect", row_at, "claims", at, "says"],
                    &mut problems,
                );
            }
        }
        if problems.is_empty() {
            Ok(judge)
        } else {
            Err(problems)
        }
    }

    fn check_names(&self, expected: &Expected, at: &[Step], problems: &mut Vec<Problem>) {
        let mut wrong = |path: &[Step], error: NameError| {
            problems.push(Problem {
                at: svclab_planner::cluster::At {
                    document: svclab_scenario::reference::DocumentRef::Lab,
                    path: at.iter().chain(path).cloned().collect(),
                },
                message: error.message,
                help: error.help,
                key: false,
                step: None,
            });
        };
        for (name, probe) in &expected.probes {
            for source in probe.sources().into_iter().flatten() {
                if let Err(error) = self.addresses(source) {
                    let field = if probe.seen_source.is_some() {
                        "seenSource"
                    } else {
                        "seenSources"
                    };
                    wrong(&place![name, field], error);
                }
            }
            for pod in probe.endpoints.iter().flatten() {
                let servers = || self.plans().flat_map(|plan| &plan.servers);
                if !servers().any(|server| probe::is_called(&server.name, pod)) {
                    let known: BTreeSet<&str> =
                        servers().map(|server| server.name.as_str()).collect();
                    let last = known.iter().filter_map(|name| name.rsplit('/').next());
                    let help = did_you_mean(pod, known.iter().copied().chain(last));
                    let message = format!("nobody who serves anything is called `{pod}`");
                    wrong(&place![name, "endpoints"], NameError { message, help });
                }
            }
        }
        for (at, wire) in expected.wire.iter().enumerate() {
            for peer in [&wire.sight.from, &wire.sight.to].into_iter().flatten() {
                if let Err(error) = self.addresses(&peer.name) {
                    wrong(&place!["wire", at], error);
                }
            }
        }
        for (at, counter) in expected.counters.iter().enumerate() {
            if !COUNTER_GROUPS
                .iter()
                .any(|group| counter.counter.starts_with(group))
            {
                let message = format!("`{}` is no counter of the kernel's", counter.counter);
                let help = Some(
                    "counters are named as `nstat -az` prints them: TcpExtIPReversePathFilter"
                        .to_owned(),
                );
                wrong(
                    &place!["counters", at, "counter"],
                    NameError { message, help },
                );
            }
        }
    }

    /// Returns the plans of all stages.
    fn plans(&self) -> impl Iterator<Item = &'a Plan> {
        let after = self.subject.after.iter().map(|moment| moment.plan);
        std::iter::once(self.plan).chain(after)
    }

    /// Returns the addresses that a name has at any stage.
    fn addresses(&self, name: &str) -> Result<BTreeSet<IpAddr>, NameError> {
        let mut all = self.book.addresses(name);
        for book in &self.books {
            match (&mut all, book.addresses(name)) {
                (Ok(known), Ok(more)) => known.extend(more),
                (Err(_), Ok(more)) => all = Ok(more),
                (_, Err(_)) => {}
            }
        }
        all
    }

    /// Returns the index of the step after which a probe runs, or in which a probe across steps
    /// ends. `None` for a probe that ends before the first step.
    fn step_of(&self, name: &str, probe: &Probe) -> Option<usize> {
        let mut steps = self.subject.spec.steps.iter();
        match &probe.across {
            Some(across) => steps.position(|step| step.name == *across),
            None => steps.position(|step| step.probes.contains_key(name)),
        }
    }

    /// Compares all evidence of the case with its expectations.
    #[must_use]
    pub fn judge(&self, evidence: &Evidence) -> Judgement {
        let mut judgement = self.hold(&self.row.expected, evidence);
        judgement.claims = self.claims(evidence, judgement.holds());
        judgement.doubtful = doubtful::find(&self.row.expected, &judgement, evidence);
        judgement
    }

    /// Returns the traffic shifts after each step, without comparing them with expectations.
    #[must_use]
    pub fn moved(&self, evidence: &Evidence) -> Vec<StepOutcome> {
        self.steps(&Expected::default(), evidence)
    }

    fn claims(&self, evidence: &Evidence, row_holds: bool) -> Vec<ClaimOutcome> {
        let one = |claim: &svclab_scenario::expectation::ClaimRef| {
            let (verdict, seen) = match &claim.says {
                _ if !row_holds => (ClaimVerdict::Unsettled, None),
                None => (ClaimVerdict::Confirmed, None),
                Some(says) => {
                    let judged = self.hold(says, evidence);
                    if judged.holds() {
                        (ClaimVerdict::Confirmed, None)
                    } else {
                        (ClaimVerdict::Refuted, Some(differences(&judged)))
                    }
                }
            };
            ClaimOutcome {
                id: claim.id.clone(),
                verdict,
                part: claim.part.clone(),
                seen,
            }
        };
        self.row.claims.iter().map(one).collect()
    }

    /// Compares the evidence with one set of expectations.
    fn hold(&self, expected: &Expected, evidence: &Evidence) -> Judgement {
        let probes = self
            .subject
            .spec
            .all_probes()
            .map(|(name, probe)| {
                let step = self.step_of(name, probe);
                let seen = step.map(|step| evidence.steps.get(step));
                let attempts = match seen {
                    None => evidence.attempts.as_slice(),
                    Some(seen) => seen.map_or(&[][..], |seen| &seen.evidence.attempts),
                };
                let book = step
                    .and_then(|step| self.books.get(step))
                    .unwrap_or(&self.book);
                let (mut observed, sources) = probe::observe(attempts, name, book);
                let wanted = expected.probes.get(name);
                if wanted.is_none_or(|wanted| wanted.source_port.is_none()) {
                    observed.source_ports.clear();
                }
                let groups: Option<Vec<BTreeSet<IpAddr>>> =
                    wanted.and_then(ProbeExpectation::sources).map(|names| {
                        names
                            .iter()
                            .map(|name| self.addresses(name).unwrap_or_default())
                            .collect()
                    });
                ProbeOutcome {
                    name: name.clone(),
                    from: probe.from.clone(),
                    to: probe.to.clone(),
                    step: step
                        .and_then(|step| self.subject.spec.steps.get(step))
                        .map(|step| step.name.clone()),
                    expected: wanted.map(probe::expected_words),
                    holds: wanted.is_none_or(|wanted| {
                        probe::holds(wanted, &observed, &sources, groups.as_deref())
                    }),
                    observed,
                }
            })
            .collect();
        Judgement {
            probes,
            wire: self.wire(expected, evidence),
            counters: self.counters(expected, evidence),
            rules: self
                .rules(expected, last(evidence))
                .into_iter()
                .chain(self.chains(expected, last(evidence)))
                .collect(),
            held: self.held(expected, last(evidence)),
            steps: self.steps(expected, evidence),
            claims: Vec::new(),
            doubtful: None,
        }
    }

    /// Returns the traffic shifts after each step, compared with the expectations.
    fn steps(&self, expected: &Expected, evidence: &Evidence) -> Vec<StepOutcome> {
        let moments = std::iter::once(&self.subject.first).chain(&self.subject.after);
        let mut outcomes = Vec::new();
        for (at, (before, after)) in moments.zip(&self.subject.after).enumerate() {
            let within = self.subject.spec.steps.get(at);
            let within = within.and_then(|step| Some((step, expected.steps.get(&step.name)?)));
            let Some(seen) = evidence.steps.get(at) else {
                // Without evidence of the step, its expectation is not met.
                outcomes.extend(within.map(|(step, expected)| StepOutcome {
                    name: step.name.clone(),
                    applied_us: 0,
                    moved: Vec::new(),
                    expected: Some(within_words(expected)),
                    holds: false,
                }));
                continue;
            };
            let earlier = self.earlier(at, evidence);
            let clusters = (before.cluster, after.cluster);
            let change = Change::new(clusters, after.plan, earlier, seen);
            let tried = self.plan.steps.get(at).map_or(&[][..], |step| &step.probes);
            let mut outcome = StepOutcome {
                name: seen.name.clone(),
                applied_us: seen.applied.saturating_sub(seen.changed) / 1000,
                moved: tried
                    .iter()
                    .filter_map(|probe| change.moved(probe))
                    .collect(),
                expected: None,
                holds: true,
            };
            if let Some((_, expected)) = within {
                outcome.expected = Some(within_words(expected));
                let in_time = |moved| moved <= expected.within;
                outcome.holds = outcome.moved().is_some_and(in_time);
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    /// Returns the attempts before a step, each with its probe.
    fn earlier<'e>(&self, at: usize, evidence: &'e Evidence) -> Vec<(&'e PlannedProbe, &'e Attempt)>
    where
        'a: 'e,
    {
        let first = std::iter::once((&self.plan.probes, &evidence.attempts));
        let steps = self.plan.steps.iter().zip(&evidence.steps).take(at);
        let later = steps.map(|(step, seen)| (&step.probes, &seen.evidence.attempts));
        let opened = self.plan.steps.iter().map(|step| &step.open);
        let all = first.chain(later).zip(opened);
        all.flat_map(|((probes, attempts), open)| {
            attempts.iter().filter_map(move |attempt| {
                let mut known = probes.iter().chain(open);
                let probe = known.find(|probe| probe.name == attempt.probe)?;
                Some((probe, attempt))
            })
        })
        .collect()
    }

    /// Compares sets, virtual servers and interfaces with the expectations.
    fn held(&self, expected: &Expected, evidence: &Evidence) -> Vec<Check> {
        let nothing = Held::default();
        let of = |name: &str| {
            evidence
                .held
                .get(&self.book.netns(name))
                .unwrap_or(&nothing)
        };
        let sets = expected.sets.iter().map(|set| held::set(set, of(&set.on)));
        let servers = expected
            .ipvs
            .iter()
            .map(|server| held::virtual_server(server, of(&server.on)));
        let links = expected
            .links
            .iter()
            .map(|link| held::link(link, of(&link.on.of)));
        sets.chain(servers).chain(links).collect()
    }

    fn wire(&self, expected: &Expected, evidence: &Evidence) -> Vec<Check> {
        expected
            .wire
            .iter()
            .flat_map(|wire| self.on_wire(wire, evidence))
            .collect()
    }

    /// Compares the number of matching packets, and the intervals between retransmissions, with an
    /// expectation.
    fn on_wire(&self, wire: &WireExpectation, evidence: &Evidence) -> Vec<Check> {
        let netns = self.book.netns(&wire.on.of);
        let packets = evidence.packets.iter();
        let later = evidence.steps.iter().map(|step| &*step.evidence);
        let left_out: u64 = later
            .clone()
            .map(|later| later.packets_left_out)
            .fold(evidence.packets_left_out, u64::saturating_add);
        let frames: Vec<(u64, Frame)> = packets
            .chain(later.flat_map(|later| &later.packets))
            .filter(|packet| packet.namespace == netns && packet.interface == wire.on.interface)
            .filter_map(|packet| Some((packet.time, Frame::read(&packet.bytes)?)))
            .filter(|(_, frame)| self.matches(&wire.sight, frame) && says(wire, frame))
            .collect();
        let seen = u32::try_from(frames.len()).unwrap_or(u32::MAX);
        // An unrecorded packet might match.
        let complete = left_out == 0;
        let left_out = if complete {
            String::new()
        } else {
            format!(", and {left_out} packets were not kept")
        };
        let mut checks = vec![Check {
            on: wire.on.to_string(),
            expected: format!("{} {wire}", times(&wire.count.to_string())),
            observed: format!("{}{left_out}", times(&seen.to_string())),
            // Without an upper bound, additional packets do not matter.
            holds: wire.count.contains(seen) && (complete || wire.count.max().is_none()),
        }];
        if let Some(expected) = &wire.resent {
            let patience = self.patience();
            let all = resent::pauses(frames.iter().map(|(time, frame)| (*time, frame)));
            let wrong = all
                .iter()
                .find(|seen| !resent::hold(expected, seen, patience));
            let told = wrong.or(all.first());
            checks.push(Check {
                on: wire.on.to_string(),
                expected: format!(
                    "{wire}, again after {}, as far as {} go",
                    resent::words(expected),
                    resent::words(&[patience])
                ),
                observed: match told {
                    None => "no such packet".to_owned(),
                    Some(pauses) if pauses.is_empty() => format!("not again{left_out}"),
                    Some(pauses) => format!("after {}{left_out}", resent::words(pauses)),
                },
                holds: complete && wrong.is_none() && !all.is_empty(),
            });
        }
        checks
    }

    /// Returns the shortest maximum wait of all TCP probes.
    fn patience(&self) -> Duration {
        let steps = self.plan.steps.iter();
        let later = steps.flat_map(|step| step.probes.iter().chain(&step.open));
        let tcp = self.plan.probes.iter().chain(later);
        tcp.filter(|probe| probe.protocol == Protocol::Tcp)
            .map(|probe| probe.patience)
            .min()
            .unwrap_or_default()
    }

    fn matches(&self, sight: &Sight, frame: &Frame) -> bool {
        let frame = match sight.via {
            Some(Overlay::Vxlan) => match &frame.inner {
                Some(inner) => inner,
                None => return false,
            },
            None => frame,
        };
        let is = |peer: Option<&Peer>, address: IpAddr, port: Option<u16>| {
            peer.is_none_or(|peer| {
                self.addresses(&peer.name)
                    .is_ok_and(|known| known.contains(&address))
                    && peer.port.is_none_or(|wanted| port == Some(wanted))
            })
        };
        let (from, to) = frame.ports.unzip();
        frame.is(sight.kind)
            && is(sight.from.as_ref(), frame.source, from)
            && is(sight.to.as_ref(), frame.destination, to)
    }

    fn counters(&self, expected: &Expected, evidence: &Evidence) -> Vec<Check> {
        expected
            .counters
            .iter()
            .map(|counter| {
                let netns = self.book.netns(&counter.on);
                let later = evidence.steps.iter().map(|step| &*step.evidence);
                let grew = std::iter::once(evidence)
                    .chain(later)
                    .filter_map(|seen| seen.counters.get(&netns)?.get(&counter.counter))
                    .fold(0, |sum: i64, by| sum.saturating_add(*by));
                Check {
                    on: counter.on.clone(),
                    expected: format!("{} grows by {}", counter.counter, counter.grows),
                    observed: format!("by {grew}"),
                    holds: u32::try_from(grew).is_ok_and(|grew| counter.grows.contains(grew)),
                }
            })
            .collect()
    }

    fn chains(&self, expected: &Expected, evidence: &Evidence) -> Vec<Check> {
        expected
            .chains
            .iter()
            .map(|chain| {
                let netns = self.book.netns(&chain.on);
                let own = is_of_nftables(&chain.table);
                let seen = if own {
                    let held = evidence.held.get(&netns);
                    held.and_then(|held| tables::rules_of(held, &chain.table, &chain.chain))
                } else {
                    rule::rules_of(&evidence.rules, &netns, &chain.table, &chain.chain)
                };
                let is = |seen: &[String]| {
                    if own {
                        tables::are_same(seen, &chain.is)
                    } else {
                        *seen == *chain.is
                    }
                };
                Check {
                    on: chain.on.clone(),
                    expected: format!(
                        "{} {} holds these {} rules",
                        chain.table,
                        chain.chain,
                        chain.is.len()
                    ),
                    observed: match &seen {
                        None => "there is no such chain".to_owned(),
                        Some(seen) if is(seen) => "these".to_owned(),
                        Some(seen) => first_difference(&chain.is, seen),
                    },
                    holds: seen.is_some_and(|seen| is(&seen)),
                }
            })
            .collect()
    }

    fn rules(&self, expected: &Expected, evidence: &Evidence) -> Vec<Check> {
        expected
            .rules
            .iter()
            .map(|rule| {
                let netns = self.book.netns(&rule.on);
                let own = is_of_nftables(&rule.table);
                let hits = if own {
                    tables::hits(evidence, &netns, rule)
                } else {
                    rule::hits(&evidence.rules, &netns, rule)
                };
                // An unrecorded trace event might be a match of the rule.
                let left_out = if own { evidence.met_left_out } else { 0 };
                let complete = left_out == 0 || rule.hits.max().is_none();
                Check {
                    on: rule.on.clone(),
                    expected: format!(
                        "{} packets meet {} {} `{}`",
                        rule.hits, rule.table, rule.chain, rule.rule
                    ),
                    observed: hits.map_or_else(
                        || "there is no such rule".to_owned(),
                        |hits| match left_out {
                            0 => hits.to_string(),
                            _ => format!("{hits}, and {left_out} steps were not kept"),
                        },
                    ),
                    holds: complete
                        && hits
                            .and_then(|hits| u32::try_from(hits).ok())
                            .is_some_and(|hits| rule.hits.contains(hits)),
                }
            })
            .collect()
    }
}

fn within_words(expected: &StepExpectation) -> String {
    format!("within {}", humantime::format_duration(expected.within))
}

/// Whether a table name is that of a native nftables table: family and name.
fn is_of_nftables(table: &str) -> bool {
    table.contains(' ')
}

/// Returns the evidence of the last stage, which has the final kernel state.
fn last(evidence: &Evidence) -> &Evidence {
    evidence
        .steps
        .last()
        .map_or(evidence, |step| &step.evidence)
}

/// Describes the first difference between two chains.
fn first_difference(wanted: &[String], seen: &[String]) -> String {
    let at = wanted
        .iter()
        .zip(seen)
        .take_while(|(wanted, seen)| wanted == seen)
        .count();
    let rule = |rules: &[String]| {
        rules
            .get(at)
            .map_or_else(|| "no rule".to_owned(), |rule| format!("`{rule}`"))
    };
    format!(
        "{} rules; rule {} is {}, not {}",
        seen.len(),
        at + 1,
        rule(seen),
        rule(wanted)
    )
}

/// Whether the TCP header of a packet has the expected window and maximum segment size.
fn says(wire: &WireExpectation, frame: &Frame) -> bool {
    let segment = match wire.sight.via {
        Some(Overlay::Vxlan) => frame.inner.as_ref().and_then(|inner| inner.segment),
        None => frame.segment,
    };
    wire.mss
        .is_none_or(|mss| segment.is_some_and(|segment| segment.mss == Some(mss)))
        && wire
            .window
            .is_none_or(|window| segment.is_some_and(|segment| segment.window == window))
}

fn times(count: &str) -> String {
    format!("{count} ×")
}

/// Returns the failed expectations of a claim, each with its observation.
fn differences(judged: &Judgement) -> String {
    let probes = judged
        .probes
        .iter()
        .filter(|probe| !probe.holds)
        .map(|outcome| {
            format!(
                "{}: claimed {}; seen {}",
                outcome.name,
                outcome.expected.as_deref().unwrap_or_default(),
                probe::observed_words(&outcome.observed)
            )
        });
    let checks = judged.checks().filter(|check| !check.holds).map(|check| {
        format!(
            "{}: claimed {}; seen {}",
            check.on, check.expected, check.observed
        )
    });
    let steps = judged.steps.iter().filter(|step| !step.holds).map(|step| {
        format!(
            "{}: claimed {}; seen {}",
            step.name,
            step.expected.as_deref().unwrap_or_default(),
            step.seen()
        )
    });
    let all = probes.chain(checks).chain(steps);
    all.collect::<Vec<_>>().join("; ")
}
