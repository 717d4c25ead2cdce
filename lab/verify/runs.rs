//! What became of one flow each time that its case was run, on both sides.

use super::chance::{Likeness, SURE, likeness};
use super::tally::Tally;

/// What became of one flow in each run of its case.
#[derive(Debug, Clone)]
pub struct Runs {
    /// With what is compared against, and with what is compared.
    each: Vec<[Tally; 2]>,
    /// Whether its connections have more in common than the rules that they meet.
    shares: bool,
}

impl Runs {
    /// Of a flow that is tried in a lab as it was built: every connection is drawn anew.
    #[must_use]
    pub fn of_what_stands(first: [Tally; 2]) -> Self {
        Self {
            each: vec![first],
            shares: false,
        }
    }

    /// Of a flow that is tried after a step: all its connections meet what the one change
    /// came to, which may come otherwise the next time.
    #[must_use]
    pub fn of_a_step(first: [Tally; 2]) -> Self {
        Self {
            each: vec![first],
            shares: true,
        }
    }

    /// Adds another run.
    pub fn add(&mut self, run: [Tally; 2]) {
        self.each.push(run);
    }

    /// All of it on both sides.
    #[must_use]
    pub fn all(&self) -> [Tally; 2] {
        self.without(None)
    }

    /// Whether both sides come out alike. Of what is tried after a step a difference is
    /// sure only where it is so without any one of the runs, too: in one, a single change
    /// that came otherwise moves every connection.
    #[must_use]
    pub fn likeness(&self) -> Likeness {
        let [against, new] = self.all();
        let whole = likeness(&against, &new);
        if !self.shares || whole == Likeness::Same {
            return whole;
        }
        let chance = (0..self.each.len())
            .map(|run| {
                let [against, new] = self.without(Some(run));
                likeness(&against, &new).chance()
            })
            .fold(0.0, f64::max);
        if chance < SURE {
            Likeness::Changed(chance)
        } else {
            Likeness::Unsure(chance)
        }
    }

    fn without(&self, left_out: Option<usize>) -> [Tally; 2] {
        let mut all = [Tally::default(), Tally::default()];
        let runs = self.each.iter().enumerate();
        for (_, run) in runs.filter(|(at, _)| Some(*at) != left_out) {
            for (all, own) in all.iter_mut().zip(run) {
                all.add(own);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Verdict;
    use crate::verify::Outcome;

    fn tally(of: &[(&str, u64)]) -> Tally {
        let mut tally = Tally::default();
        for (endpoint, count) in of {
            for _ in 0..*count {
                tally.count(Outcome {
                    endpoint: Some((*endpoint).to_owned()),
                    ..Outcome::of(Verdict::Answered)
                });
            }
        }
        tally
    }

    fn stays() -> Tally {
        tally(&[("a", 16), ("b", 16)])
    }

    fn leaves() -> Tally {
        tally(&[("b", 32)])
    }

    #[test]
    fn what_stands_is_sure_of_one_run() {
        let runs = Runs::of_what_stands([tally(&[("a", 32)]), tally(&[("b", 32)])]);
        assert!(matches!(runs.likeness(), Likeness::Changed(_)));
    }

    #[test]
    fn a_step_is_seen_more_than_once() {
        let moved = || [tally(&[("a", 32)]), tally(&[("b", 32)])];
        let mut runs = Runs::of_a_step(moved());
        assert!(matches!(runs.likeness(), Likeness::Unsure(_)));
        runs.add(moved());
        assert!(matches!(runs.likeness(), Likeness::Changed(_)));
    }

    #[test]
    fn a_step_that_went_otherwise_once_is_no_difference() {
        let mut runs = Runs::of_a_step([stays(), leaves()]);
        for _ in 0..6 {
            runs.add([leaves(), leaves()]);
            assert!(
                matches!(runs.likeness(), Likeness::Unsure(chance) if chance >= crate::verify::DOUBTFUL),
                "{:?}",
                runs.likeness()
            );
        }
    }

    #[test]
    fn half_of_the_flows_are_told_of_after_some_runs() {
        let mut runs = Runs::of_a_step([stays(), leaves()]);
        assert!(matches!(runs.likeness(), Likeness::Unsure(_)));
        runs.add([stays(), leaves()]);
        runs.add([stays(), leaves()]);
        assert!(matches!(runs.likeness(), Likeness::Changed(_)));
        assert_eq!(
            runs.all(),
            [tally(&[("a", 48), ("b", 48)]), tally(&[("b", 96)])]
        );
    }

    #[test]
    fn a_step_after_which_all_is_alike_is_seen_once() {
        let runs = Runs::of_a_step([stays(), stays()]);
        assert_eq!(runs.likeness(), Likeness::Same);
    }
}
