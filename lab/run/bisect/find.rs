//! Narrowing two plans' differences down by trials.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use thiserror::Error;

use super::bench::{Bench, Tried, Way, tallies};
use crate::bisect::document::{Over, Purpose, Reached, Shown, Trial};
use crate::bisect::{
    Alike, Bisection, Chosen, Level, Like, Narrowed, Pair, PairError, SCHEMA, Symptom, narrow,
};
use crate::evidence::Evidence;
use crate::kernel::{Agent, KernelError};
use crate::plan::{Plan, Probe};
use crate::verify::{Outcome, Tally, Times};

/// How many connections good and bad have at first to be told apart, and at most.
const AT_FIRST: u32 = 64;
const AT_MOST: u32 = 512;

/// How often all is narrowed down again where the answer does not hold, each time with more
/// patience.
const AGAIN: u32 = 2;

/// So many times the patience of before.
const PATIENCE: u32 = 4;

/// What is bisected.
#[derive(Debug, Clone)]
pub struct Task {
    /// What is well.
    pub good: Plan,
    /// What is not.
    pub bad: Plan,
    /// What good is called.
    pub good_name: String,
    /// What bad is called.
    pub bad_name: String,
    /// Where both are files laid over a lab: which.
    pub over: Option<Over>,
    /// Which probe tells them apart; any, without it.
    pub probe: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum BisectError {
    /// They cannot be laid over each other.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// They mean the same.
    #[error(
        "{good} and {bad} mean the same: nothing differs between them that could break anything"
    )]
    Same {
        /// What was to be good.
        good: String,
        /// What was to be bad.
        bad: String,
    },
    /// They do the same.
    #[error(
        "{alike}: {good} and {bad} have {differences}, and in good what was tried came to this: {seen}"
    )]
    Alike {
        /// How much.
        alike: Alike,
        /// What was to be good.
        good: String,
        /// What was to be bad.
        bad: String,
        /// How many differences, in words.
        differences: String,
        /// What became of the probes.
        seen: String,
    },
    /// Nothing is tried in both.
    #[error("{good} and {bad} have no probe in common{}", asked(wanted.as_ref(), there))]
    NoProbe {
        /// What was to be good.
        good: String,
        /// What was to be bad.
        bad: String,
        /// The probe that was asked for.
        wanted: Option<String>,
        /// Those that both have.
        there: Vec<String>,
    },
    /// One of the ends cannot be built.
    #[error("{name} cannot be built: {why}")]
    End {
        /// What it is called.
        name: String,
        /// In the kernel's words.
        why: String,
    },
    /// What was found does not hold.
    #[error(
        "no answer holds: what {probe} comes to changes from one trial to the next in a way that chance does not explain, as on a machine that is too busy"
    )]
    Unsteady {
        /// The probe.
        probe: String,
    },
    /// A trial came to no evidence.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

fn asked(wanted: Option<&String>, there: &[String]) -> String {
    match wanted {
        Some(wanted) if !there.is_empty() => {
            format!(" called `{wanted}`, but {}", there.join(", "))
        }
        Some(wanted) => format!(", and none called `{wanted}`"),
        None => String::new(),
    }
}

impl BisectError {
    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Alike { .. } => Some(
                "add a probe to the lab that shows what is wrong, or make sure that good is good and bad is bad"
                    .to_owned(),
            ),
            Self::Same { .. } => Some(
                "compare other cases or files; `svclab diff` says in what two dumps differ".to_owned(),
            ),
            Self::NoProbe { .. } => Some(
                "name cases that try the same thing, or with --probe one that both have; probes of steps do not count"
                    .to_owned(),
            ),
            Self::Unsteady { .. } => Some("run it again when the machine is quiet".to_owned()),
            Self::End { .. } => Some(
                "run it by itself, as good and bad have to stand before what is between them can"
                    .to_owned(),
            ),
            Self::Pair(_) | Self::Kernel(_) => None,
        }
    }
}

/// The plan that says what a kernel must have for every trial.
#[must_use]
pub fn needs(task: &Task) -> Plan {
    let mut needs = task.good.clone();
    needs.namespaces.extend(task.bad.namespaces.iter().cloned());
    needs.typed.extend(task.bad.typed.iter().cloned());
    needs
}

/// Finds what makes the difference.
///
/// `tell` hears of each trial, with the number of differences.
///
/// # Errors
///
/// See [`BisectError`].
pub async fn find(
    task: &Task,
    agent: &Agent,
    tell: &mut impl FnMut(&Trial, usize),
) -> Result<Bisection, BisectError> {
    let begun = Instant::now();
    let pair = Pair::of(&task.good, &task.bad)?;
    if pair.is_empty() {
        return Err(BisectError::Same {
            good: task.good_name.clone(),
            bad: task.bad_name.clone(),
        });
    }
    let mut finding = Finding {
        task,
        probes: probes(task)?,
        pair,
        bench: Bench::new(agent),
        trials: Vec::new(),
        tell,
    };
    let ends = finding.ends().await?;
    let mut patience = ends.patience;
    let mut narrowed = None;
    for _ in 0..=AGAIN {
        let way = Way::Quick {
            connections: ends.symptom.connections,
            patience,
        };
        let found = finding.narrowed(&ends, way).await?;
        if finding.holds(&ends, &found, way).await? {
            narrowed = Some(found);
            break;
        }
        patience *= PATIENCE;
    }
    let Some(Narrowed { breaks, cures }) = narrowed else {
        return Err(BisectError::Unsteady {
            probe: ends.symptom.probe,
        });
    };
    let wrong = ends.symptom.wrong(finding.trials.len());
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a probability in millionths is between 0 and a million"
    )]
    let wrong_in_million = (wrong * 1e6).ceil() as u64;
    Ok(Bisection {
        schema: SCHEMA.to_owned(),
        good: task.good_name.clone(),
        bad: task.bad_name.clone(),
        over: task.over.clone(),
        kernel: finding.bench.kernel().to_owned(),
        symptom: ends.shown,
        differences: finding.pair.len(),
        breaks: finding.pair.told(&breaks),
        cures: finding.pair.told(&cures),
        trials: finding.trials,
        wrong_in_million,
        duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// What is tried in both.
fn probes(task: &Task) -> Result<Vec<Probe>, BisectError> {
    let alike = |one: &Probe, other: &Probe| {
        let of = |probe: &Probe| {
            (
                probe.name.clone(),
                probe.from.clone(),
                probe.to,
                probe.protocol,
                probe.bind,
            )
        };
        of(one) == of(other)
    };
    let both = task.good.probes.iter();
    let both: Vec<Probe> = both
        .filter(|one| task.bad.probes.iter().any(|other| alike(one, other)))
        .cloned()
        .collect();
    let wanted = |probe: &&Probe| {
        task.probe
            .as_ref()
            .is_none_or(|wanted| probe.name == *wanted)
    };
    let chosen: Vec<Probe> = both.iter().filter(wanted).cloned().collect();
    if chosen.is_empty() {
        return Err(BisectError::NoProbe {
            good: task.good_name.clone(),
            bad: task.bad_name.clone(),
            wanted: task.probe.clone(),
            there: both.into_iter().map(|probe| probe.name).collect(),
        });
    }
    Ok(chosen)
}

/// What good and bad do.
struct Ends {
    symptom: Symptom,
    probe: Probe,
    shown: Shown,
    patience: Duration,
    /// What good and bad come to with all patience, where chance has no part in it.
    slow: Option<[BTreeSet<Outcome>; 2]>,
}

impl Ends {
    /// What a trial with all patience is like.
    fn slow(&self, tally: &Tally) -> Like {
        let seen = outcomes(&self.symptom, tally);
        match &self.slow {
            Some([good, _]) if seen.is_subset(good) => Like::Good,
            Some([good, _]) if seen.is_disjoint(good) => Like::Bad,
            _ => Like::Neither,
        }
    }
}

/// What of the outcomes of connections counts.
fn outcomes(symptom: &Symptom, tally: &Tally) -> BTreeSet<Outcome> {
    tally
        .iter()
        .map(|(outcome, _)| symptom.level.of(outcome))
        .collect()
}

struct Finding<'t, F> {
    task: &'t Task,
    pair: Pair,
    probes: Vec<Probe>,
    bench: Bench<'t>,
    trials: Vec<Trial>,
    tell: &'t mut F,
}

impl<F: FnMut(&Trial, usize)> Finding<'_, F> {
    fn chosen(&self, set: &[usize], there: bool) -> Chosen {
        let all = 0..self.pair.len();
        all.map(|at| set.contains(&at) == there).collect()
    }

    /// Tries both ends until they are told apart.
    async fn ends(&mut self) -> Result<Ends, BisectError> {
        let (good, bad) = (self.chosen(&[], true), self.chosen(&[], false));
        let probes = self.probes.clone();
        let slow_good = self.end(&good, &probes, Way::Slow).await?;
        let slow_bad = self.end(&bad, &probes, Way::Slow).await?;
        let patience = Way::patience(&[&slow_good, &slow_bad]);
        let mut connections = AT_FIRST;
        loop {
            let way = Way::Quick {
                connections,
                patience,
            };
            // The lab that stands is the bad one.
            let seen_bad = self.end(&bad, &probes, way).await?;
            let seen_good = self.end(&good, &probes, way).await?;
            let one = self.tallies(&seen_good);
            let other = self.tallies(&seen_bad);
            let mut all: Vec<Symptom> = Vec::new();
            let mut worst = Alike::Same;
            for probe in &probes {
                let empty = Tally::default();
                let of = |tallies: &IndexMap<String, Tally>| {
                    tallies.get(&probe.name).unwrap_or(&empty).clone()
                };
                match Symptom::of(
                    &probe.name,
                    &of(&one),
                    &of(&other),
                    self.pair.len(),
                    connections >= AT_MOST,
                ) {
                    Ok(symptom) => all.push(symptom),
                    Err(Alike::Same) => {}
                    Err(faint) => worst = faint,
                }
            }
            all.sort_by_key(|symptom| (symptom.level, symptom.connections));
            // What a caller experiences comes before all else, as soon as it can be told.
            let enough = worst == Alike::Same
                || connections >= AT_MOST
                || all
                    .first()
                    .is_some_and(|first| first.level == Level::Verdict);
            let mut all = all.into_iter().filter(|_| enough);
            if let Some(symptom) = all.next()
                && let Some(probe) = probes.iter().find(|probe| probe.name == symptom.probe)
            {
                let seen = |all: &IndexMap<String, Tally>| times(all.get(&symptom.probe));
                let shown = Shown {
                    probe: symptom.probe.clone(),
                    from: probe.from.clone(),
                    to: destination(probe),
                    by: symptom.level,
                    good: seen(&one),
                    bad: seen(&other),
                    others: all.map(|symptom| symptom.probe).collect(),
                };
                let slow = [&slow_good, &slow_bad].map(|seen| {
                    let tallies = self.tallies(seen);
                    let tally = tallies.get(&symptom.probe);
                    tally
                        .map(|tally| outcomes(&symptom, tally))
                        .unwrap_or_default()
                });
                let [one, other] = &slow;
                let told = symptom.certain && one.is_disjoint(other);
                return Ok(Ends {
                    slow: told.then_some(slow),
                    probe: probe.clone(),
                    symptom,
                    shown,
                    patience,
                });
            }
            if worst == Alike::Same || connections >= AT_MOST {
                return Err(BisectError::Alike {
                    alike: worst,
                    good: self.task.good_name.clone(),
                    bad: self.task.bad_name.clone(),
                    differences: counted(self.pair.len()),
                    seen: all_seen(&one),
                });
            }
            connections *= 2;
        }
    }

    async fn end(
        &mut self,
        chosen: &Chosen,
        probes: &[Probe],
        way: Way,
    ) -> Result<Evidence, BisectError> {
        let plan = self.pair.plan(chosen);
        let is_bad = chosen.first() == Some(&true);
        match self.bench.tried(&plan, probes, way).await? {
            Tried::Seen(evidence, reached) => {
                let tallies = self.tallies(&evidence);
                let seen = match probes {
                    [probe] => times(tallies.get(&probe.name)),
                    _ => Vec::new(),
                };
                self.note(Trial {
                    of: Purpose::End,
                    as_bad: if is_bad { chosen.len() } else { 0 },
                    reached,
                    seen,
                    like: if is_bad { Like::Bad } else { Like::Good },
                    refused: None,
                });
                Ok(*evidence)
            }
            Tried::Refused(why) => {
                let name = if is_bad {
                    &self.task.bad_name
                } else {
                    &self.task.good_name
                };
                Err(BisectError::End {
                    name: name.clone(),
                    why,
                })
            }
        }
    }

    async fn narrowed(&mut self, ends: &Ends, way: Way) -> Result<Narrowed, BisectError> {
        let all = self.pair.len();
        narrow(all, async |chosen: &Chosen| {
            self.one(chosen, ends, way, Purpose::Narrowing).await
        })
        .await
    }

    /// One trial with the probe that tells good and bad apart.
    async fn one(
        &mut self,
        chosen: &Chosen,
        ends: &Ends,
        way: Way,
        of: Purpose,
    ) -> Result<Like, BisectError> {
        let plan = self.pair.plan(chosen);
        let tried = self
            .bench
            .tried(&plan, std::slice::from_ref(&ends.probe), way)
            .await?;
        let as_bad = chosen.iter().filter(|there| **there).count();
        let trial = match tried {
            Tried::Seen(evidence, reached) => {
                let tallies = self.tallies(&evidence);
                let tally = tallies.get(&ends.probe.name);
                let like = tally.map_or(Like::Neither, |tally| match way {
                    Way::Quick { .. } => ends.symptom.like(tally),
                    Way::Slow => ends.slow(tally),
                });
                Trial {
                    of,
                    as_bad,
                    reached,
                    seen: times(tally),
                    like,
                    refused: None,
                }
            }
            Tried::Refused(why) => Trial {
                of,
                as_bad,
                reached: Reached::Not,
                seen: Vec::new(),
                like: Like::Neither,
                refused: Some(why),
            },
        };
        let like = trial.like;
        self.note(trial);
        Ok(like)
    }

    /// Whether the answer holds in labs that are built anew, and where chance has no part in
    /// it, with all patience.
    async fn holds(
        &mut self,
        ends: &Ends,
        found: &Narrowed,
        way: Way,
    ) -> Result<bool, BisectError> {
        let broken = (self.chosen(&found.breaks, true), Like::Bad);
        let cured = (self.chosen(&found.cures, false), Like::Good);
        for (chosen, wanted) in [broken, cured] {
            // Both ends were seen with all patience.
            let is_end = chosen.iter().all(|there| *there) || !chosen.iter().any(|there| *there);
            if is_end {
                continue;
            }
            self.bench.clear();
            if self.one(&chosen, ends, way, Purpose::Verification).await? != wanted {
                return Ok(false);
            }
            if ends.slow.is_some()
                && self
                    .one(&chosen, ends, Way::Slow, Purpose::Verification)
                    .await?
                    != wanted
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn tallies(&self, evidence: &Evidence) -> IndexMap<String, Tally> {
        tallies(&self.task.good, evidence)
    }

    fn note(&mut self, trial: Trial) {
        (self.tell)(&trial, self.pair.len());
        self.trials.push(trial);
    }
}

fn times(tally: Option<&Tally>) -> Vec<Times> {
    let all = tally.into_iter().flat_map(Tally::iter);
    let all = all.map(|(outcome, connections)| Times {
        outcome: outcome.clone(),
        connections,
    });
    all.collect()
}

fn destination(probe: &Probe) -> String {
    match probe.to.port {
        0 => probe.to.address.to_string(),
        _ => probe.to.socket().to_string(),
    }
}

fn counted(differences: usize) -> String {
    match differences {
        1 => "1 difference".to_owned(),
        _ => format!("{differences} differences"),
    }
}

fn all_seen(tallies: &IndexMap<String, Tally>) -> String {
    let each = tallies.iter().map(|(probe, tally)| {
        let all: Vec<String> = tally
            .iter()
            .map(|(outcome, _)| outcome.to_string())
            .collect();
        format!("{probe} {}", all.join(" or "))
    });
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_where_there_is_no_answer() {
        let (good, bad) = ("lab/good".to_owned(), "lab/bad".to_owned());
        let alike = |alike| BisectError::Alike {
            alike,
            good: good.clone(),
            bad: bad.clone(),
            differences: counted(3),
            seen: "call connected to pod/default/web".to_owned(),
        };
        let no_probe = |wanted: Option<&str>, there: &[&str]| BisectError::NoProbe {
            good: good.clone(),
            bad: bad.clone(),
            wanted: wanted.map(str::to_owned),
            there: there.iter().map(|name| (*name).to_owned()).collect(),
        };
        let all = [
            alike(Alike::Same),
            alike(Alike::Faint(AT_MOST)),
            BisectError::Same {
                good: good.clone(),
                bad: bad.clone(),
            },
            no_probe(None, &[]),
            no_probe(Some("call"), &[]),
            no_probe(Some("call"), &["other", "third"]),
            BisectError::End {
                name: bad.clone(),
                why: "iptables-restore: line 3 failed".to_owned(),
            },
            BisectError::Unsteady {
                probe: "call".to_owned(),
            },
        ];
        let told = all.iter().map(|error| {
            let remedy = error.remedy();
            let remedy = remedy.map(|remedy| format!("\n  what to do: {remedy}"));
            format!("{error}{}", remedy.unwrap_or_default())
        });
        insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"));
    }
}
