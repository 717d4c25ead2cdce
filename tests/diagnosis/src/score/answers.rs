//! Reads the JSON documents of svclab's commands into statements. New fields of a document are read
//! without a change here: a statement has all texts of its object.

use serde_json::Value;

use super::matching::describes_loss;
use crate::tool::Output;

/// Kind of statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Form {
    /// Causes found by trials.
    #[default]
    Culprits,
    /// Differences of dumps, which show the rules of a wrong field.
    Differences,
    /// Confirmed cures.
    Cures,
    /// Sentences, of which only some give a cause.
    Sentences,
}

/// Answer of a command.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Statements of the answer, one per cause.
    pub(crate) statements: Vec<String>,
    /// Cures of each failing probe that has some.
    pub(crate) cures: Vec<Vec<String>>,
    /// Objects that the command lists as not examined.
    pub(crate) notes: Vec<String>,
    pub(crate) form: Form,
    /// Whether the answer states that nothing is wrong.
    pub(crate) all_clear: bool,
    /// Number of trials.
    pub(crate) trials: usize,
    /// Reason why there is no answer.
    pub(crate) failure: Option<String>,
}

impl Answer {
    /// Joins the answers for two nodes. Nothing is wrong if nothing is wrong on both.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.statements.extend(other.statements);
        self.cures.extend(other.cures);
        self.notes.extend(other.notes);
        self.all_clear &= other.all_clear;
        self.trials += other.trials;
        self.failure = self.failure.and(other.failure);
        self
    }

    /// Returns the first statements, or the reason why there is none.
    pub(crate) fn beginning(&self) -> String {
        const MAX_CHARACTERS: usize = 300;
        // Sentences on the path of packets come last.
        let statements = self.statements.iter().map(String::as_str);
        let (mut texts, path): (Vec<&str>, Vec<&str>) =
            statements.partition(|text| describes_loss(&text.to_lowercase()));
        texts.extend(path);
        // Connections that went alike differ in their source ports.
        texts.dedup_by_key(|text| text.replace(|c: char| c.is_ascii_digit(), ""));
        let all = self.failure.clone().unwrap_or_else(|| texts.join(" | "));
        all.chars().take(MAX_CHARACTERS).collect()
    }
}

/// Joins all texts and numbers of a JSON value.
fn flatten(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Number(number) => into.push(number.to_string()),
        Value::Array(all) => all.iter().for_each(|value| flatten(value, into)),
        Value::Object(all) => all.iter().for_each(|(_, value)| flatten(value, into)),
        Value::Null | Value::Bool(_) => {}
    }
}

fn statement(value: &Value) -> String {
    let mut texts = Vec::new();
    flatten(value, &mut texts);
    texts.join(" ")
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

/// Makes the answer of a command that failed, whose time ended, or whose output is not JSON.
pub(crate) fn failed(output: &Output) -> Answer {
    Answer {
        failure: Some(output.failure()),
        ..Answer::default()
    }
}

/// Reads the output of `svclab diff`.
pub(crate) fn diff(document: &Value) -> Answer {
    Answer {
        statements: list(document, "differences").map(statement).collect(),
        all_clear: document["same"] == true,
        form: Form::Differences,
        ..Answer::default()
    }
}

/// Reads the output of `svclab bisect`, or its error: an all-clear has no document.
pub(crate) fn bisect(output: &Output) -> Answer {
    let Ok(document) = serde_json::from_str::<Value>(&output.stdout) else {
        let error = &output.stderr;
        let all_clear = ["have no differences", "behave the same"]
            .iter()
            .any(|text| error.contains(text));
        // Differences that were not tried, each in a line.
        let untried = error
            .split_once("not tried, because")
            .map(|(_, lines)| lines);
        let lines = untried.into_iter().flat_map(str::lines);
        let notes = lines.filter(|line| line.starts_with("  "));
        return Answer {
            all_clear: all_clear && output.code == Some(2),
            notes: notes.map(|line| line.trim().to_owned()).collect(),
            ..failed(output)
        };
    };
    let findings = std::iter::once(&document).chain(list(&document, "further"));
    let sets = findings.flat_map(|found| list(found, "breaks").chain(list(found, "fixes")));
    let mut statements: Vec<String> = sets
        .flat_map(|set| set.as_array().into_iter().flatten())
        .map(statement)
        .collect();
    statements.extend(
        list(&document, "declaredBy").map(|declared| format!("declared {}", statement(declared))),
    );
    Answer {
        statements,
        notes: list(&document, "notTried").map(statement).collect(),
        trials: list(&document, "trials").count(),
        // Dumps have rules, and no fields of objects.
        form: if document["base"].is_null() {
            Form::default()
        } else {
            Form::Differences
        },
        ..Answer::default()
    }
}

/// Reads the output of `svclab why`.
pub(crate) fn why(document: &Value) -> Answer {
    let cases: Vec<&Value> = list(document, "cases").collect();
    let failing: Vec<&Value> = cases
        .iter()
        .flat_map(|case| list(case, "failing"))
        .collect();
    let cures = failing.iter().map(|probe| {
        let fixes = list(probe, "fixes").map(statement);
        fixes.collect::<Vec<String>>()
    });
    let cures: Vec<Vec<String>> = cures.filter(|fixes| !fixes.is_empty()).collect();
    let runs = cases
        .iter()
        .filter_map(|case| case["runs"].as_u64())
        .sum::<u64>();
    Answer {
        // A case with an error is absent.
        all_clear: failing.is_empty() && !cases.is_empty(),
        form: Form::Cures,
        notes: cases
            .iter()
            .flat_map(|case| list(case, "dumps"))
            .flat_map(|dump| list(dump, "omitted"))
            .map(statement)
            .collect(),
        statements: cures.concat(),
        cures,
        trials: usize::try_from(runs).unwrap_or(usize::MAX),
        ..Answer::default()
    }
}

/// Reads the output of `svclab explain` or `svclab replay`: the conclusions on connections of
/// failing probes, and the differences that their packets did not meet.
pub(crate) fn journeys(document: &Value, failing: &[String]) -> Answer {
    let case = match &document["case"] {
        Value::Object(_) => &document["case"],
        _ => &document["cases"][0],
    };
    let of_failing: Vec<&Value> = list(case, "stages")
        .flat_map(|stage| list(stage, "connections"))
        .filter(|connection| {
            failing
                .iter()
                .any(|probe| connection["probe"] == probe.as_str())
        })
        .collect();
    let is_lost = |connection: &Value| {
        !matches!(
            connection["verdict"].as_str(),
            Some("connected" | "answered")
        )
    };
    let loses = |probe: &Value| {
        let mut connections = of_failing.iter();
        connections.any(|connection| connection["probe"] == *probe && is_lost(connection))
    };
    let mut statements: Vec<String> = of_failing
        .iter()
        .filter(|connection| is_lost(connection) || !loses(&connection["probe"]))
        .flat_map(|connection| list(connection, "conclusion"))
        .chain(
            list(case, "stages")
                .flat_map(|stage| list(stage, "unmet"))
                .map(|unmet| &unmet["sentence"]),
        )
        .map(statement)
        .collect();
    statements.sort();
    statements.dedup();
    Answer {
        statements,
        notes: list(document, "nodes")
            .flat_map(|node| list(node, "omitted"))
            .map(statement)
            .collect(),
        form: Form::Sentences,
        all_clear: case["expected"] == true,
        ..Answer::default()
    }
}

/// Reads the failing probes from the output of `svclab run`: `Err` is the error of the case.
pub(crate) fn failing_probes(output: &Output) -> Result<Vec<String>, String> {
    let document: Value = serde_json::from_str(&output.stdout).map_err(|_| output.failure())?;
    let case = &document["cases"][0];
    match case["result"].as_str() {
        Some("pass") => Ok(Vec::new()),
        Some("fail") => Ok(list(case, "probes")
            .filter(|probe| probe["holds"] == false)
            .filter_map(|probe| probe["name"].as_str().map(str::to_owned))
            .collect()),
        _ => Err(statement(&case["error"])),
    }
}
