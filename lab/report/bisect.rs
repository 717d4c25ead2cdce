//! What a bisection came to, for people.

use std::fmt::Write as _;

use crate::bisect::document::{Bisection, Purpose, Reached, Trial};
use crate::bisect::{Difference, Like};
use crate::verify::Times;

/// The answer.
#[must_use]
pub fn human(found: &Bisection) -> String {
    let mut text = String::new();
    let over = found.over.as_ref().map_or_else(String::new, |over| {
        format!(", as the rules of {} in {}", over.node, over.case)
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
        let _ = writeln!(text, "  so do differ: {}", symptom.others.join(", "));
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

/// The narrowing, trial by trial.
#[must_use]
pub fn narrowing(found: &Bisection) -> String {
    let mut text = format!("good  {}\nbad   {}\n", found.good, found.bad);
    let _ = writeln!(
        text,
        "{} of {} on {}\n",
        counted(found.differences),
        found.symptom.probe,
        found.kernel
    );
    for (at, trial) in found.trials.iter().enumerate() {
        let _ = writeln!(text, "{}", line(at + 1, trial, found.differences));
    }
    text
}

/// One trial as a line.
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
    let line = format!(
        "{number:>3}  {:>5} of {differences} as in bad  {reached:<7}  {like:<7}  {why:<12}  {seen}",
        trial.as_bad
    );
    line.trim_end().to_owned()
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
