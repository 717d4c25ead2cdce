//! Prints the result of the bench: a table of kinds, totals of commands, and each wrong answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{Table, presets};
use serde::Serialize;

use crate::args::Command;
use crate::score::Grade;
use crate::trial::{Score, Status, Trial};

/// Result of the bench in JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document<'a> {
    totals: BTreeMap<Command, Total>,
    trials: &'a [Trial],
}

/// Sums of a command over trials whose fault shows.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Total {
    asked: usize,
    exact: usize,
    near: usize,
    other: usize,
    nothing: usize,
    false_all_clears: usize,
    false_cures: usize,
    trials: usize,
    seconds: f64,
}

impl Total {
    fn add(&mut self, score: &Score) {
        self.asked += 1;
        *match score.grade {
            Grade::Exact => &mut self.exact,
            Grade::Near => &mut self.near,
            Grade::Other => &mut self.other,
            Grade::Nothing => &mut self.nothing,
        } += 1;
        self.false_all_clears += usize::from(score.false_all_clear);
        self.false_cures += usize::from(score.false_cure);
        self.trials += score.trials;
        self.seconds += score.seconds;
    }

    fn is_met(&self, aim: u32) -> bool {
        let has_enough = u32::try_from(self.exact * 100)
            .ok()
            .zip(u32::try_from(self.asked).ok())
            .is_some_and(|(exact, asked)| exact >= aim * asked);
        has_enough && self.false_all_clears == 0 && self.false_cures == 0
    }

    #[expect(clippy::cast_precision_loss, reason = "a number of trials is small")]
    fn mean_seconds(&self) -> f64 {
        self.seconds / self.asked.max(1) as f64
    }
}

fn totals<'a>(trials: impl Iterator<Item = &'a Trial>) -> BTreeMap<Command, Total> {
    let mut totals: BTreeMap<Command, Total> = BTreeMap::new();
    for (command, score) in trials.flat_map(|trial| &trial.scores) {
        totals.entry(*command).or_default().add(score);
    }
    totals
}

impl<'a> Document<'a> {
    pub(crate) fn new(trials: &'a [Trial]) -> Self {
        Self {
            totals: totals(trials.iter()),
            trials,
        }
    }
}

/// Renders the result as text.
pub(crate) fn render(trials: &[Trial], commands: &[Command]) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}\n\nExact, near, other and no answers; ! false all-clear, ? false cure; trials; mean \
         seconds.\n\n{}\n",
        kinds_table(trials, commands),
        totals_table(trials, commands)
    );
    for command in commands {
        let scored = |trial: &Trial| {
            let score = trial.scores.get(command)?;
            let line = || format!("  {}: {}\n", label(trial), describe(score));
            (score.grade != Grade::Exact).then(line)
        };
        let wrong: String = trials.iter().filter_map(scored).collect();
        if !wrong.is_empty() {
            let _ = writeln!(text, "Wrong answers of {}:\n{wrong}", command.name());
        }
    }
    for trial in trials {
        match &trial.status {
            Status::Shows { .. } => {}
            Status::DoesNotShow => {
                let _ = writeln!(
                    text,
                    "does not show: {}: {}",
                    label(trial),
                    trial.faults.join(" and ")
                );
            }
            Status::CannotBeApplied { reason } => {
                let _ = writeln!(text, "cannot be applied: {}: {reason}", label(trial));
            }
        }
    }
    text
}

fn label(trial: &Trial) -> String {
    format!(
        "{} ({}, seed {})",
        trial.kinds.join(" and "),
        trial.mode.name(),
        trial.seed
    )
}

fn describe(score: &Score) -> String {
    let grade = match score.grade {
        Grade::Exact => "exact",
        Grade::Near => "near",
        Grade::Other => "something else",
        Grade::Nothing => "nothing",
    };
    let all_clear = if score.false_all_clear {
        ", FALSE ALL-CLEAR"
    } else {
        ""
    };
    let cure = if score.false_cure { ", FALSE CURE" } else { "" };
    format!(
        "{grade}{all_clear}{cure}: {}",
        score.answer.replace('\n', " ")
    )
}

fn kinds_table(trials: &[Trial], commands: &[Command]) -> Table {
    let mut table = Table::new();
    let header = ["kind", "measured"]
        .into_iter()
        .chain(commands.iter().map(|command| command.name()));
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    let mut kinds: Vec<(&str, Vec<&'static str>)> = Vec::new();
    for trial in trials {
        if !kinds.iter().any(|(_, names)| *names == trial.kinds) {
            kinds.push((trial.area, trial.kinds.clone()));
        }
    }
    for (_, names) in kinds {
        let own = || trials.iter().filter(|trial| trial.kinds == names);
        let shows = own()
            .filter(|trial| matches!(trial.status, Status::Shows { .. }))
            .count();
        let sums = totals(own());
        let cells = commands
            .iter()
            .map(|command| sums.get(command).map_or_else(String::new, cell));
        let first = [names.join(" and "), format!("{shows} of {}", own().count())];
        table.add_row(first.into_iter().chain(cells));
    }
    table
}

/// Renders the scores of a kind: `2e 1n !1, 12 trials, 3.4 s`.
fn cell(total: &Total) -> String {
    let counts = [
        (total.exact, "exact"),
        (total.near, "near"),
        (total.other, "other"),
        (total.nothing, "none"),
    ];
    let mut parts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    if total.false_all_clears > 0 {
        parts.push(format!("{}!", total.false_all_clears));
    }
    if total.false_cures > 0 {
        parts.push(format!("{}?", total.false_cures));
    }
    if total.trials > 0 {
        parts.push(format!("{} trials", total.trials));
    }
    parts.push(format!("{:.1} s", total.mean_seconds()));
    parts.join(", ")
}

fn totals_table(trials: &[Trial], commands: &[Command]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "command",
        "asked",
        "exact",
        "near",
        "other",
        "nothing",
        "false all-clears",
        "false cures",
        "trials",
        "mean",
        "aim",
    ]);
    let sums = totals(trials.iter());
    for command in commands {
        let Some(total) = sums.get(command) else {
            continue;
        };
        let met = if total.is_met(command.aim()) {
            "met"
        } else {
            "missed"
        };
        let counts = [
            total.asked,
            total.exact,
            total.near,
            total.other,
            total.nothing,
            total.false_all_clears,
            total.false_cures,
            total.trials,
        ];
        let counts = counts.iter().map(usize::to_string);
        let last = [
            format!("{:.1} s", total.mean_seconds()),
            format!("{} %: {met}", command.aim()),
        ];
        table.add_row(
            [command.name().to_owned()]
                .into_iter()
                .chain(counts)
                .chain(last),
        );
    }
    table
}
