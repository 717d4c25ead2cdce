//! Trying changes in copies of a failing case, until some make it work.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};

use super::execute::{Options, trouble};
use super::pool::{Pool, Pools};
use super::prepare::{Prepared, Wishes, prepare};
use super::select::Chosen;
use crate::evidence::{Evidence, Verdict};
use crate::explain::journey::Journey;
use crate::explain::{Book, conclusion};
use crate::kernel::KernelError;
use crate::plan::Watch;
use crate::report::{RunError, Trouble};
use crate::scenario::count::Count;
use crate::scenario::expectation::ProbeExpectation;
use crate::why::{Came, Change, Cure, Fared, Finding, Told, Tried, Wrong, candidates};

/// How many combinations are tried of a case at most.
const MOST: usize = 400;

/// How often a cure is seen again before it counts, at most.
const OFTEN: u32 = 12;

/// How unlikely it is to be that connections were made by chance, one in so many.
const BY_CHANCE: f64 = 1000.0;

/// A case that is asked about.
#[derive(Debug)]
pub struct Asked<'l> {
    /// Its lab.
    pub lab: &'l Chosen,
    /// The case.
    pub prepared: Prepared,
    /// How cases are prepared.
    pub wishes: Wishes,
    /// The probe in question; all whose connections are not made without it.
    pub probe: Option<String>,
}

/// Finds out of cases, one after the other, what makes them work; nothing when `enough`
/// ends first. `begun` is told each as it is begun.
pub async fn why(
    cases: Vec<Asked<'_>>,
    options: &Options,
    begun: impl Fn(&str),
    enough: impl Future<Output = ()>,
) -> Option<Vec<Result<Finding, (String, RunError)>>> {
    let prepared: Vec<Prepared> = cases.iter().map(|asked| asked.prepared.clone()).collect();
    let pools = Pools::new(options, &prepared);
    let all = async {
        let mut found = Vec::new();
        for asked in &cases {
            let case = &asked.prepared.case.id;
            begun(case);
            let one = one(asked, &pools, options.jobs).await;
            found.push(one.map_err(|error| (case.clone(), error)));
        }
        found
    };
    tokio::select! {
        biased;
        found = all => Some(found),
        () = enough => None,
    }
}

async fn one(asked: &Asked<'_>, pools: &Pools, jobs: usize) -> Result<Finding, RunError> {
    let found = pools.of_case(&asked.prepared).await;
    let pool = found.map_err(|error| trouble(&error))?.into_iter().next();
    let pool = pool.ok_or_else(|| RunError {
        trouble: Trouble::Bug,
        message: "no kernel was found for the case".to_owned(),
        remedy: None,
    })?;
    let mut search = Search::begin(asked, pool, jobs).await?;
    if !search.finding.is_healthy() {
        search.singly().await?;
        if !search.finding.is_answered() {
            search.in_pairs().await?;
        }
    }
    Ok(search.finding)
}

/// How many of a probe's connections were made, of how many.
type Made = BTreeMap<String, (u32, u32)>;

/// Whether a call was answered as its caller wants it.
fn is_made(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Connected | Verdict::Answered)
}

fn made(evidence: &Evidence) -> Made {
    let mut made = Made::new();
    for attempt in &evidence.attempts {
        let (connected, of) = made.entry(attempt.probe.clone()).or_default();
        *connected += u32::from(is_made(attempt.verdict));
        *of += 1;
    }
    made
}

/// What is known so far of a case.
struct Search<'a> {
    asked: &'a Asked<'a>,
    pool: Arc<Pool>,
    jobs: usize,
    /// As the case is.
    before: Made,
    /// How often a cure is to be seen.
    often: u32,
    /// What is worth trying.
    candidates: Vec<Change>,
    finding: Finding,
}

impl<'a> Search<'a> {
    /// Runs the case as it is, with everything watched.
    async fn begin(asked: &'a Asked<'a>, pool: Arc<Pool>, jobs: usize) -> Result<Self, RunError> {
        let told = |error: KernelError| trouble(&error);
        let agent = pool.agent().await.map_err(told)?;
        let kernel = agent.surroundings().kernel.clone();
        let evidence = run(&pool, &asked.prepared, true).await.map_err(told)?;
        let before = made(&evidence);
        let mut search = Self {
            finding: Finding {
                case: asked.prepared.case.id.clone(),
                kernel,
                wrong: Vec::new(),
                tried: Vec::new(),
                runs: 1,
            },
            often: often(&before),
            asked,
            pool,
            jobs,
            before,
            candidates: Vec::new(),
        };
        let journeys = journeys(&asked.prepared, &evidence);
        let book = Book::new(&asked.prepared.cluster, &asked.prepared.plan);
        for (probe, (connected, of)) in &search.before {
            if connected < of && search.is_in_question(probe) {
                let failed =
                    |journey: &&Journey| journey.probe == *probe && !is_made(journey.verdict);
                let one = journeys.iter().find(failed);
                search.finding.wrong.push(Wrong {
                    probe: probe.clone(),
                    connected: *connected,
                    of: *of,
                    told: one.map(|one| conclusion(one, &book)).unwrap_or_default(),
                    cures: Vec::new(),
                });
            }
        }
        search.candidates = search.worth_trying(&asked.prepared, &journeys);
        Ok(search)
    }

    /// Whether it is asked why a probe's connections are not all made: of the one that was
    /// named, else of those that the lab expects to be made in some case or says nothing of.
    fn is_in_question(&self, probe: &str) -> bool {
        if let Some(asked) = &self.asked.probe {
            return asked == probe;
        }
        let rows = self.asked.prepared.case.spec.expect.iter();
        let mut said = rows
            .filter_map(|row| row.expected.probes.get(probe))
            .peekable();
        let is_made = |expected: &ProbeExpectation| {
            let counts = [expected.connected, expected.answered];
            counts
                .into_iter()
                .flatten()
                .any(|count| count != Count::exactly(0))
        };
        said.peek().is_none() || said.any(is_made)
    }

    fn worth_trying(&self, prepared: &Prepared, journeys: &[Journey]) -> Vec<Change> {
        let wrong: Vec<&Journey> = journeys
            .iter()
            .filter(|journey| !is_made(journey.verdict))
            .filter(|journey| self.is_in_question(&journey.probe))
            .collect();
        candidates(&prepared.case, &prepared.cluster, &prepared.plan, &wrong)
    }

    /// Tries each candidate alone.
    async fn singly(&mut self) -> Result<(), RunError> {
        let each = self.candidates.iter().map(|change| vec![change.clone()]);
        self.all(each.collect()).await
    }

    /// Tries candidates in pairs: with each of those that do something, what is worth
    /// trying once it is made.
    async fn in_pairs(&mut self) -> Result<(), RunError> {
        let mut pairs: Vec<Vec<Change>> = Vec::new();
        for first in self.candidates.clone() {
            let Ok(changed) = self.changed(std::slice::from_ref(&first)) else {
                continue;
            };
            let Ok(evidence) = run(&self.pool, &changed, true).await else {
                continue;
            };
            self.finding.runs += 1;
            let journeys = journeys(&changed, &evidence);
            let mut next = self.worth_trying(&changed, &journeys);
            next.extend(self.candidates.clone());
            for second in next {
                let pair = vec![first.clone(), second.clone()];
                let turned = vec![second, first.clone()];
                if pair[0] != pair[1] && !pairs.contains(&pair) && !pairs.contains(&turned) {
                    pairs.push(pair);
                }
            }
        }
        pairs.sort_by_key(|pair| pair.iter().map(Change::level).max());
        pairs.truncate(MOST);
        self.all(pairs).await
    }

    /// Tries each of these, and keeps what cures.
    async fn all(&mut self, each: Vec<Vec<Change>>) -> Result<(), RunError> {
        let came: Vec<_> = stream::iter(each)
            .map(|changes| async {
                let came = self.came(&changes).await;
                (changes, came)
            })
            .buffered(self.jobs.max(1))
            .collect()
            .await;
        for (changes, came) in came {
            let (came, runs) = came.map_err(|error| trouble(&error))?;
            self.finding.runs += runs;
            let told: Vec<Told> = changes.iter().map(Told::from).collect();
            for wrong in &mut self.finding.wrong {
                if came.cures(&wrong.probe) {
                    wrong.cures.push(Cure {
                        changes: told.clone(),
                    });
                }
            }
            self.finding.tried.push(Tried {
                changes: told,
                came,
            });
        }
        for wrong in &mut self.finding.wrong {
            smallest(&mut wrong.cures);
        }
        Ok(())
    }

    /// What comes of changes, and in how many runs that was seen.
    async fn came(&self, changes: &[Change]) -> Result<(Came, u32), KernelError> {
        let copy = match self.changed(changes) {
            Ok(copy) => copy,
            Err(why) => return Ok((Came::Refused { why }, 0)),
        };
        let mut runs = 0;
        let mut worst: Option<Came> = None;
        while runs < self.often {
            let evidence = match run(&self.pool, &copy, false).await {
                // What a kernel refuses of a changed lab is the change's.
                Err(KernelError::Failed(failure)) => {
                    return Ok((
                        Came::Refused {
                            why: failure.message,
                        },
                        runs,
                    ));
                }
                ran => ran?,
            };
            runs += 1;
            let came = worse_of(worst, self.compared(&made(&evidence)));
            let hopeless = !self
                .finding
                .wrong
                .iter()
                .any(|wrong| came.cures(&wrong.probe));
            worst = Some(came);
            if hopeless {
                break;
            }
        }
        let unseen = || Came::Refused {
            why: "nothing was run".to_owned(),
        };
        Ok((worst.unwrap_or_else(unseen), runs))
    }

    fn compared(&self, after: &Made) -> Came {
        let asked = self.finding.wrong.iter().map(|wrong| {
            let (connected, of) = after.get(&wrong.probe).copied().unwrap_or((0, wrong.of));
            Fared {
                probe: wrong.probe.clone(),
                connected,
                of,
            }
        });
        let worse = |(probe, (connected, of)): (&String, &(u32, u32))| {
            let was_whole = connected == of;
            let is_whole = after.get(probe).is_some_and(|(now, of)| now == of);
            (was_whole && !is_whole).then(|| probe.clone())
        };
        Came::Ran {
            probes: asked.collect(),
            worse: self.before.iter().filter_map(worse).collect(),
        }
    }

    /// The case with changes made.
    fn changed(&self, changes: &[Change]) -> Result<Prepared, String> {
        let mut case = self.asked.prepared.case.clone();
        let mut said = false;
        for change in changes {
            said |= change.in_case(&mut case).map_err(|why| why.to_string())?;
        }
        let mut prepared = if said {
            let again = prepare(self.asked.lab, &case, self.asked.wishes.clone());
            again.map_err(|wrong| {
                let told = wrong.iter().map(|diagnostic| diagnostic.message.clone());
                told.collect::<Vec<_>>().join("; ")
            })?
        } else {
            self.asked.prepared.clone()
        };
        for change in changes {
            change
                .in_plan(&mut prepared.plan)
                .map_err(|why| why.to_string())?;
        }
        Ok(prepared)
    }
}

/// The worse of what came of several runs.
fn worse_of(before: Option<Came>, now: Came) -> Came {
    match (before, now) {
        (
            Some(Came::Ran {
                probes: before,
                worse,
            }),
            Came::Ran {
                probes,
                worse: more,
            },
        ) => {
            let least = before.into_iter().zip(probes);
            let mut worse: Vec<String> = worse.into_iter().chain(more).collect();
            worse.sort();
            worse.dedup();
            Came::Ran {
                probes: least
                    .map(|(one, other)| Fared {
                        connected: one.connected.min(other.connected),
                        ..one
                    })
                    .collect(),
                worse,
            }
        }
        (_, now) => now,
    }
}

/// Leaves out what contains less that is enough: more changes, settings of more machines.
fn smallest(cures: &mut Vec<Cure>) {
    let wider = |one: &Cure, less: &Cure| match (one.changes.as_slice(), less.changes.as_slice()) {
        ([one], [less]) => match (&one.change, &less.change) {
            (
                Change::Sysctl {
                    namespaces: many,
                    value,
                    ..
                },
                Change::Sysctl {
                    namespaces: few,
                    value: other,
                    ..
                },
            ) => {
                value == other
                    && few.len() < many.len()
                    && few.iter().all(|name| many.contains(name))
            }
            _ => false,
        },
        _ => false,
    };
    let contains = |one: &Cure, less: &Cure| {
        let more = less.changes.len() < one.changes.len();
        wider(one, less) || (more && less.changes.iter().all(|told| one.changes.contains(told)))
    };
    let all = cures.clone();
    cures.retain(|cure| !all.iter().any(|less| contains(cure, less)));
}

/// How often a cure is to be seen: where some connections are made as it is, others may be
/// by chance.
fn often(before: &Made) -> u32 {
    let of = |(connected, of): &(u32, u32)| {
        if connected == of {
            return 1;
        }
        // All would be made by chance in this share of runs.
        let share = f64::from(*connected) / f64::from((*of).max(1));
        let chance = share.powf(f64::from(*of));
        let mut runs = 1;
        let mut left = chance;
        while left * BY_CHANCE > 1.0 && runs < OFTEN {
            left *= chance;
            runs += 1;
        }
        runs
    };
    before.values().map(of).max().unwrap_or(1)
}

/// Builds a case and runs its probes, watched or not. Timeouts are settled in either way.
async fn run(pool: &Pool, prepared: &Prepared, watched: bool) -> Result<Evidence, KernelError> {
    let mut plan = prepared.plan.clone();
    plan.steps.clear();
    plan.watch = if watched {
        Watch::everything(&plan)
    } else {
        Watch::default()
    };
    for probe in &mut plan.probes {
        probe.settle = true;
    }
    let _room = pool.place(&plan).await;
    let agent = pool.agent().await?;
    let mut session = agent.build(plan).await?;
    session.probe().await
}

fn journeys(prepared: &Prepared, evidence: &Evidence) -> Vec<Journey> {
    prepared
        .journeys(evidence)
        .into_iter()
        .next()
        .unwrap_or_default()
}
