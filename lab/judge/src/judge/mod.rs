//! Compares the evidence of a case with its expectations. Output: a [`Judgement`].

pub(crate) mod claim;
pub(crate) mod doubt;
pub(crate) mod probe;
pub(crate) mod step;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use crate::address_book::AddressBook;
use crate::check::Check;
use crate::check::{iptables, kernel_state, nft_tables, retransmissions};
use crate::judge::claim::{ClaimOutcome, ClaimVerdict};
use crate::judge::probe::ProbeOutcome;
use crate::judge::step::{StepContext, StepOutcome};
use svclab_diagnostic::suggest::did_you_mean;
use svclab_journey::Frame;
use svclab_model::evidence::{Attempt, Evidence, KernelState};
use svclab_model::plan::{Plan, Probe as PlannedProbe, ProbeProtocol};
use svclab_planner::cluster::{Cluster, NameError, Problem, place};
use svclab_scenario::expectation::{Expected, ProbeExpectation, Row, StepExpectation};
use svclab_scenario::lab::{LabSpec, Probe};
use svclab_scenario::tree::PathSegment;
use svclab_scenario::wire::{Overlay, PacketPattern, Peer, WireExpectation};

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
    pub kernel_state: Vec<Check>,
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
            .chain(&self.kernel_state)
    }
}

/// Cluster and plan at one stage of a case.
#[derive(Debug, Clone, Copy)]
pub struct JudgedStage<'a> {
    /// Cluster at this stage.
    pub cluster: &'a Cluster,
    /// Plan of the namespaces and probes at this stage.
    pub plan: &'a Plan,
}

/// Input of a judge: one case.
#[derive(Debug, Clone)]
pub struct JudgedCase<'a> {
    /// Stage 0, with the plan that was run.
    pub initial: JudgedStage<'a>,
    /// Stages after each step.
    pub later_stages: Vec<JudgedStage<'a>>,
    /// Lab document.
    pub spec: &'a LabSpec,
    /// Expectations of the case.
    pub row: &'a Row,
    /// Index of the expectations in the lab's list, from 0.
    pub row_index: usize,
}

/// Judge of one case, with all names in its expectations resolved.
#[derive(Debug)]
pub struct Judge<'a> {
    address_book: AddressBook<'a>,
    /// Address books after each step.
    later_address_books: Vec<AddressBook<'a>>,
    case: JudgedCase<'a>,
    plan: &'a Plan,
    row: &'a Row,
}

impl<'a> Judge<'a> {
    /// Creates the judge of one case.
    ///
    /// # Errors
    ///
    /// Returns a problem for each unknown name in the expectations.
    pub fn new(subject: JudgedCase<'a>) -> Result<Self, Vec<Problem>> {
        let address_book = |moment: &JudgedStage<'a>| AddressBook::new(moment.cluster, moment.plan);
        let (row, row_at) = (subject.row, subject.row_index);
        let judge = Self {
            address_book: address_book(&subject.initial),
            later_address_books: subject.later_stages.iter().map(address_book).collect(),
            plan: subject.initial.plan,
            row,
            case: subject,
        };
        let mut problems = Vec::new();
        judge.check_names(
            &row.expected,
            &place!["spec", "expect", row_at],
            &mut problems,
        );
        for (index, claim) in row.claims.iter().enumerate() {
            if let Some(says) = &claim.says {
                judge.check_names(
                    says,
                    &place!["spec", "expect", row_at, "claims", index, "says"],
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

    fn check_names(
        &self,
        expected: &Expected,
        parent: &[PathSegment],
        problems: &mut Vec<Problem>,
    ) {
        let mut add_problem = |path: &[PathSegment], error: NameError| {
            problems.push(Problem {
                location: svclab_planner::cluster::DocumentPath {
                    document: svclab_scenario::reference::DocumentRef::Lab,
                    path: parent.iter().chain(path).cloned().collect(),
                },
                message: error.message,
                help: error.help,
                is_key: false,
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
                    add_problem(&place![name, field], error);
                }
            }
            for pod in probe.endpoints.iter().flatten() {
                let servers = || self.stage_plans().flat_map(|plan| &plan.servers);
                if !servers().any(|server| probe::is_name_suffix(&server.name, pod)) {
                    let names: BTreeSet<&str> =
                        servers().map(|server| server.name.as_str()).collect();
                    let short_names = names.iter().filter_map(|name| name.rsplit('/').next());
                    let help = did_you_mean(pod, names.iter().copied().chain(short_names));
                    let message = format!("no server is named `{pod}`");
                    add_problem(&place![name, "endpoints"], NameError { message, help });
                }
            }
        }
        for (index, wire) in expected.wire.iter().enumerate() {
            for peer in [&wire.pattern.from, &wire.pattern.to].into_iter().flatten() {
                if let Err(error) = self.addresses(&peer.name) {
                    add_problem(&place!["wire", index], error);
                }
            }
        }
        for (index, counter) in expected.counters.iter().enumerate() {
            if !COUNTER_GROUPS
                .iter()
                .any(|group| counter.counter.starts_with(group))
            {
                let message = format!("`{}` is not a kernel counter", counter.counter);
                let help = Some(
                    "use a name from `nstat -az`, such as TcpExtIPReversePathFilter".to_owned(),
                );
                add_problem(
                    &place!["counters", index, "counter"],
                    NameError { message, help },
                );
            }
        }
    }

    /// Returns the plans of all stages.
    fn stage_plans(&self) -> impl Iterator<Item = &'a Plan> {
        let after = self.case.later_stages.iter().map(|moment| moment.plan);
        std::iter::once(self.plan).chain(after)
    }

    /// Returns the addresses that a name has at any stage.
    fn addresses(&self, name: &str) -> Result<BTreeSet<IpAddr>, NameError> {
        let mut addresses = self.address_book.addresses(name);
        for book in &self.later_address_books {
            match (&mut addresses, book.addresses(name)) {
                (Ok(known), Ok(more)) => known.extend(more),
                (Err(_), Ok(more)) => addresses = Ok(more),
                (_, Err(_)) => {}
            }
        }
        addresses
    }

    /// Returns the index of the step after which a probe runs, or in which a probe across steps
    /// ends. `None` for a probe that ends before the first step.
    fn step_index(&self, name: &str, probe: &Probe) -> Option<usize> {
        let mut steps = self.case.spec.steps.iter();
        match &probe.across {
            Some(across) => steps.position(|step| step.name == *across),
            None => steps.position(|step| step.probes.contains_key(name)),
        }
    }

    /// Compares all evidence of the case with its expectations.
    #[must_use]
    pub fn judge(&self, evidence: &Evidence) -> Judgement {
        let mut judgement = self.check(&self.row.expected, evidence);
        judgement.claims = self.check_claims(evidence, judgement.holds());
        judgement.doubtful = doubt::find_doubtful(&self.row.expected, &judgement, evidence);
        judgement
    }

    /// Returns the traffic shifts after each step, without comparing them with expectations.
    #[must_use]
    pub fn traffic_shifts(&self, evidence: &Evidence) -> Vec<StepOutcome> {
        self.check_steps(&Expected::default(), evidence)
    }

    fn check_claims(&self, evidence: &Evidence, row_holds: bool) -> Vec<ClaimOutcome> {
        let check_claim = |claim: &svclab_scenario::expectation::ClaimRef| {
            let (verdict, seen) = match &claim.says {
                _ if !row_holds => (ClaimVerdict::Unsettled, None),
                None => (ClaimVerdict::Confirmed, None),
                Some(says) => {
                    let judgement = self.check(says, evidence);
                    if judgement.holds() {
                        (ClaimVerdict::Confirmed, None)
                    } else {
                        (
                            ClaimVerdict::Refuted,
                            Some(describe_differences(&judgement)),
                        )
                    }
                }
            };
            ClaimOutcome {
                id: claim.id.clone(),
                verdict,
                part: claim.part.clone(),
                difference: seen,
            }
        };
        self.row.claims.iter().map(check_claim).collect()
    }

    /// Compares the evidence with one set of expectations.
    fn check(&self, expected: &Expected, evidence: &Evidence) -> Judgement {
        let probes = self
            .case
            .spec
            .all_probes()
            .map(|(name, probe)| {
                let step = self.step_index(name, probe);
                let step_evidence = step.map(|step| evidence.steps.get(step));
                let attempts = match step_evidence {
                    None => evidence.attempts.as_slice(),
                    Some(seen) => seen.map_or(&[][..], |seen| &seen.evidence.attempts),
                };
                let book = step
                    .and_then(|step| self.later_address_books.get(step))
                    .unwrap_or(&self.address_book);
                let (mut observed, sources) = probe::summarize(attempts, name, book);
                let expectation = expected.probes.get(name);
                if expectation.is_none_or(|wanted| wanted.source_port.is_none()) {
                    observed.source_ports.clear();
                }
                let source_groups: Option<Vec<BTreeSet<IpAddr>>> = expectation
                    .and_then(ProbeExpectation::sources)
                    .map(|names| {
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
                        .and_then(|step| self.case.spec.steps.get(step))
                        .map(|step| step.name.clone()),
                    expected: expectation.map(probe::render_expectation),
                    holds: expectation.is_none_or(|wanted| {
                        probe::meets_expectation(
                            wanted,
                            &observed,
                            &sources,
                            source_groups.as_deref(),
                        )
                    }),
                    observed,
                }
            })
            .collect();
        Judgement {
            probes,
            wire: self.check_wire(expected, evidence),
            counters: self.check_counters(expected, evidence),
            rules: self
                .check_rules(expected, last_stage(evidence))
                .into_iter()
                .chain(self.check_chains(expected, last_stage(evidence)))
                .collect(),
            kernel_state: self.check_kernel_state(expected, last_stage(evidence)),
            steps: self.check_steps(expected, evidence),
            claims: Vec::new(),
            doubtful: None,
        }
    }

    /// Returns the traffic shifts after each step, compared with the expectations.
    fn check_steps(&self, expected: &Expected, evidence: &Evidence) -> Vec<StepOutcome> {
        let stages = std::iter::once(&self.case.initial).chain(&self.case.later_stages);
        let mut outcomes = Vec::new();
        for (index, (before, after)) in stages.zip(&self.case.later_stages).enumerate() {
            let within = self.case.spec.steps.get(index);
            let within = within.and_then(|step| Some((step, expected.steps.get(&step.name)?)));
            let Some(step_evidence) = evidence.steps.get(index) else {
                // Without evidence of the step, its expectation is not met.
                outcomes.extend(within.map(|(step, expected)| StepOutcome {
                    name: step.name.clone(),
                    applied_us: 0,
                    shifts: Vec::new(),
                    expected: Some(render_within(expected)),
                    holds: false,
                }));
                continue;
            };
            let earlier = self.attempts_before(index, evidence);
            let clusters = (before.cluster, after.cluster);
            let change = StepContext::new(clusters, after.plan, earlier, step_evidence);
            let probes = self
                .plan
                .steps
                .get(index)
                .map_or(&[][..], |step| &step.probes);
            let mut outcome = StepOutcome {
                name: step_evidence.name.clone(),
                applied_us: step_evidence
                    .applied_at
                    .saturating_sub(step_evidence.changed_at)
                    / 1000,
                shifts: probes
                    .iter()
                    .filter_map(|probe| change.traffic_shift(probe))
                    .collect(),
                expected: None,
                holds: true,
            };
            if let Some((_, expected)) = within {
                outcome.expected = Some(render_within(expected));
                let is_in_time = |moved| moved <= expected.within;
                outcome.holds = outcome.shift_delay().is_some_and(is_in_time);
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    /// Returns the attempts before a step, each with its probe.
    fn attempts_before<'e>(
        &self,
        index: usize,
        evidence: &'e Evidence,
    ) -> Vec<(&'e PlannedProbe, &'e Attempt)>
    where
        'a: 'e,
    {
        let first = std::iter::once((&self.plan.probes, &evidence.attempts));
        let steps = self.plan.steps.iter().zip(&evidence.steps).take(index);
        let later = steps.map(|(step, seen)| (&step.probes, &seen.evidence.attempts));
        let opened = self.plan.steps.iter().map(|step| &step.open);
        let stages = first.chain(later).zip(opened);
        stages
            .flat_map(|((probes, attempts), open)| {
                attempts.iter().filter_map(move |attempt| {
                    let mut candidates = probes.iter().chain(open);
                    let probe = candidates.find(|probe| probe.name == attempt.probe)?;
                    Some((probe, attempt))
                })
            })
            .collect()
    }

    /// Compares sets, virtual servers and interfaces with the expectations.
    fn check_kernel_state(&self, expected: &Expected, evidence: &Evidence) -> Vec<Check> {
        let empty = KernelState::default();
        let state_of = |name: &str| {
            evidence
                .kernel_state
                .get(&self.address_book.namespace_of(name))
                .unwrap_or(&empty)
        };
        let sets = expected
            .sets
            .iter()
            .map(|set| kernel_state::check_set(set, state_of(&set.on)));
        let servers = expected
            .ipvs
            .iter()
            .map(|server| kernel_state::check_virtual_server(server, state_of(&server.on)));
        let links = expected
            .links
            .iter()
            .map(|link| kernel_state::check_link(link, state_of(&link.on.owner)));
        sets.chain(servers).chain(links).collect()
    }

    fn check_wire(&self, expected: &Expected, evidence: &Evidence) -> Vec<Check> {
        expected
            .wire
            .iter()
            .flat_map(|wire| self.check_packets(wire, evidence))
            .collect()
    }

    /// Compares the number of matching packets, and the intervals between retransmissions, with an
    /// expectation.
    fn check_packets(&self, wire: &WireExpectation, evidence: &Evidence) -> Vec<Check> {
        let netns = self.address_book.namespace_of(&wire.on.owner);
        let packets = evidence.packets.iter();
        let later = evidence.steps.iter().map(|step| &*step.evidence);
        let missed: u64 = later
            .clone()
            .map(|later| later.packets_missed)
            .fold(evidence.packets_missed, u64::saturating_add);
        let frames: Vec<(u64, Frame)> = packets
            .chain(later.flat_map(|later| &later.packets))
            .filter(|packet| packet.namespace == netns && packet.interface == wire.on.interface)
            .filter_map(|packet| Some((packet.time, Frame::from_ethernet(&packet.bytes)?)))
            .filter(|(_, frame)| {
                self.matches_pattern(&wire.pattern, frame) && matches_tcp_fields(wire, frame)
            })
            .collect();
        let count = u32::try_from(frames.len()).unwrap_or(u32::MAX);
        // An unrecorded packet might match.
        let complete = missed == 0;
        let missed_text = if complete {
            String::new()
        } else {
            format!(", but {missed} packets were not captured")
        };
        let mut checks = vec![Check {
            target: wire.on.to_string(),
            expected: format!("{} {wire}", format_count(&wire.count.to_string())),
            observed: format!("{}{missed_text}", format_count(&count.to_string())),
            // Without an upper bound, additional packets do not matter.
            holds: wire.count.contains(count) && (complete || wire.count.max().is_none()),
        }];
        if let Some(expected) = &wire.resent {
            let patience = self.min_wait();
            let series =
                retransmissions::intervals(frames.iter().map(|(time, frame)| (*time, frame)));
            let failed = series
                .iter()
                .find(|seen| !retransmissions::matches(expected, seen, patience));
            let shown = failed.or(series.first());
            checks.push(Check {
                target: wire.on.to_string(),
                expected: format!(
                    "{wire}, retransmitted after {}, within {}",
                    retransmissions::render_intervals(expected),
                    retransmissions::render_intervals(&[patience])
                ),
                observed: match shown {
                    None => "no matching packet".to_owned(),
                    Some(pauses) if pauses.is_empty() => format!("not retransmitted{missed_text}"),
                    Some(pauses) => {
                        format!(
                            "after {}{missed_text}",
                            retransmissions::render_intervals(pauses)
                        )
                    }
                },
                holds: complete && failed.is_none() && !series.is_empty(),
            });
        }
        checks
    }

    /// Returns the shortest maximum wait of all TCP probes.
    fn min_wait(&self) -> Duration {
        let steps = self.plan.steps.iter();
        let later = steps.flat_map(|step| step.probes.iter().chain(&step.open));
        let tcp = self.plan.probes.iter().chain(later);
        tcp.filter(|probe| probe.protocol == ProbeProtocol::Tcp)
            .map(|probe| probe.max_wait)
            .min()
            .unwrap_or_default()
    }

    fn matches_pattern(&self, sight: &PacketPattern, frame: &Frame) -> bool {
        let frame = match sight.via {
            Some(Overlay::Vxlan) => match &frame.inner {
                Some(inner) => inner,
                None => return false,
            },
            None => frame,
        };
        let is_peer = |peer: Option<&Peer>, address: IpAddr, port: Option<u16>| {
            peer.is_none_or(|peer| {
                self.addresses(&peer.name)
                    .is_ok_and(|known| known.contains(&address))
                    && peer.port.is_none_or(|wanted| port == Some(wanted))
            })
        };
        let (from, to) = frame.ports.unzip();
        frame.has_kind(sight.kind)
            && is_peer(sight.from.as_ref(), frame.source, from)
            && is_peer(sight.to.as_ref(), frame.destination, to)
    }

    fn check_counters(&self, expected: &Expected, evidence: &Evidence) -> Vec<Check> {
        expected
            .counters
            .iter()
            .map(|counter| {
                let netns = self.address_book.namespace_of(&counter.on);
                let later = evidence.steps.iter().map(|step| &*step.evidence);
                let increase = std::iter::once(evidence)
                    .chain(later)
                    .filter_map(|seen| seen.counters.get(&netns)?.get(&counter.counter))
                    .fold(0, |sum: i64, by| sum.saturating_add(*by));
                Check {
                    target: counter.on.clone(),
                    expected: format!("{} grows by {}", counter.counter, counter.grows),
                    observed: format!("by {increase}"),
                    holds: u32::try_from(increase).is_ok_and(|grew| counter.grows.contains(grew)),
                }
            })
            .collect()
    }

    fn check_chains(&self, expected: &Expected, evidence: &Evidence) -> Vec<Check> {
        expected
            .chains
            .iter()
            .map(|chain| {
                let netns = self.address_book.namespace_of(&chain.on);
                let is_native = is_native_table(&chain.table);
                let rules = if is_native {
                    let held = evidence.kernel_state.get(&netns);
                    held.and_then(|held| nft_tables::chain_rules(held, &chain.table, &chain.chain))
                } else {
                    iptables::chain_rules(&evidence.rules, &netns, &chain.table, &chain.chain)
                };
                let is_expected = |seen: &[String]| {
                    if is_native {
                        nft_tables::is_equivalent(seen, &chain.is)
                    } else {
                        *seen == *chain.is
                    }
                };
                Check {
                    target: chain.on.clone(),
                    expected: format!(
                        "{} {} has the {} expected rules",
                        chain.table,
                        chain.chain,
                        chain.is.len()
                    ),
                    observed: match &rules {
                        None => "no such chain".to_owned(),
                        Some(seen) if is_expected(seen) => "the expected rules".to_owned(),
                        Some(seen) => first_difference(&chain.is, seen),
                    },
                    holds: rules.is_some_and(|seen| is_expected(&seen)),
                }
            })
            .collect()
    }

    fn check_rules(&self, expected: &Expected, evidence: &Evidence) -> Vec<Check> {
        expected
            .rules
            .iter()
            .map(|rule| {
                let netns = self.address_book.namespace_of(&rule.on);
                let is_native = is_native_table(&rule.table);
                let hits = if is_native {
                    nft_tables::count_hits(evidence, &netns, rule)
                } else {
                    iptables::count_hits(&evidence.rules, &netns, rule)
                };
                // An unrecorded trace event might be a match of the rule.
                let missed = if is_native { evidence.trace_missed } else { 0 };
                let complete = missed == 0 || rule.hits.max().is_none();
                Check {
                    target: rule.on.clone(),
                    expected: format!(
                        "{} packets match {} {} `{}`",
                        rule.hits, rule.table, rule.chain, rule.rule
                    ),
                    observed: hits.map_or_else(
                        || "no such rule".to_owned(),
                        |hits| match missed {
                            0 => hits.to_string(),
                            _ => format!("{hits}, but {missed} trace events were not recorded"),
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

fn render_within(expected: &StepExpectation) -> String {
    format!("within {}", humantime::format_duration(expected.within))
}

/// Whether a table name is that of a native nftables table: family and name.
fn is_native_table(table: &str) -> bool {
    table.contains(' ')
}

/// Returns the evidence of the last stage, which has the final kernel state.
fn last_stage(evidence: &Evidence) -> &Evidence {
    evidence
        .steps
        .last()
        .map_or(evidence, |step| &step.evidence)
}

/// Describes the first difference between two chains.
fn first_difference(expected: &[String], observed: &[String]) -> String {
    let index = expected
        .iter()
        .zip(observed)
        .take_while(|(wanted, seen)| wanted == seen)
        .count();
    let rule = |rules: &[String]| {
        rules
            .get(index)
            .map_or_else(|| "absent".to_owned(), |rule| format!("`{rule}`"))
    };
    format!(
        "{} rules; rule {} is {}, expected {}",
        observed.len(),
        index + 1,
        rule(observed),
        rule(expected)
    )
}

/// Whether the TCP header of a packet has the expected window and maximum segment size.
fn matches_tcp_fields(wire: &WireExpectation, frame: &Frame) -> bool {
    let segment = match wire.pattern.via {
        Some(Overlay::Vxlan) => frame.inner.as_ref().and_then(|inner| inner.tcp_header),
        None => frame.tcp_header,
    };
    wire.mss
        .is_none_or(|mss| segment.is_some_and(|segment| segment.mss == Some(mss)))
        && wire
            .window
            .is_none_or(|window| segment.is_some_and(|segment| segment.window == window))
}

fn format_count(count: &str) -> String {
    format!("{count} ×")
}

/// Returns the failed expectations of a claim, each with its observation.
fn describe_differences(judgement: &Judgement) -> String {
    let probes = judgement
        .probes
        .iter()
        .filter(|probe| !probe.holds)
        .map(|outcome| {
            format!(
                "{}: claimed {}; seen {}",
                outcome.name,
                outcome.expected.as_deref().unwrap_or_default(),
                probe::render_observed(&outcome.observed)
            )
        });
    let checks = judgement
        .checks()
        .filter(|check| !check.holds)
        .map(|check| {
            format!(
                "{}: claimed {}; seen {}",
                check.target, check.expected, check.observed
            )
        });
    let steps = judgement
        .steps
        .iter()
        .filter(|step| !step.holds)
        .map(|step| {
            format!(
                "{}: claimed {}; seen {}",
                step.name,
                step.expected.as_deref().unwrap_or_default(),
                step.describe_shifts()
            )
        });
    let descriptions = probes.chain(checks).chain(steps);
    descriptions.collect::<Vec<_>>().join("; ")
}
