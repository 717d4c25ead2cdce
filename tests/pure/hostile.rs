//! Checks that no text of a lab or object can add a rule, chain, table, set or word to the
//! generated scripts. Replaces every text of every lab, including those of the objects, by hostile
//! texts that would do so if they were inserted without escaping.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;
use svclab_diagnostic::source::{Source, Sources};
use svclab_model::plan::Plan;
use svclab_runner::run::{SelectedLab, prepare};
use svclab_scenario::Scenario;
use svclab_test_support::{ordinary_or_full, topologies};

/// Texts that change the meaning of an input if inserted without escaping: of `iptables-restore`,
/// `ipset restore`, `nft -f`, a shell, or a path.
const HOSTILE: [&str; 20] = [
    "x\nCOMMIT\n*filter\n:INPUT DROP [0:0]\nCOMMIT\n",
    "x\n-A INPUT -j DROP",
    "x\r\n-A INPUT -j DROP",
    "x\" -j DROP -m comment --comment \"",
    "x' -j DROP '",
    "x\\",
    "x -j DROP",
    "-j DROP",
    "--modprobe=/bin/sh",
    "! x",
    "x\nadd KUBE-CLUSTER-IP 0.0.0.0",
    "x timeout 1",
    "x\u{0}y",
    "x\u{1b}[2Jy",
    "x\u{2028}y",
    "$(touch /tmp/x)",
    "`x`; x | x > /tmp/x",
    "../../../etc/passwd",
    "#x",
    "%s%n",
];

/// Harmless text that replaces the same texts for comparison.
const HARMLESS: &str = "harmless";

/// Index of the lab, index of its document, path to the text, and whether the text is a key.
type TextLocation = (usize, usize, (Vec<String>, bool));

/// Parses the documents of a lab.
fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).expect("a lab")
}

/// Returns the documents of every lab in `topologies/`.
fn labs() -> Vec<Vec<Value>> {
    let mut labs: Vec<_> = std::fs::read_dir(topologies())
        .expect("the labs")
        .map(|entry| entry.expect("a lab").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    labs.sort();
    let texts = labs
        .iter()
        .map(|path| std::fs::read_to_string(path).expect("a lab"));
    texts.map(|text| documents(&text)).collect()
}

/// Collects the path of every text: map values, list elements and keys.
fn texts(value: &Value, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, bool)>) {
    match value {
        Value::String(_) => found.push((path.clone(), false)),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(index.to_string());
                texts(item, path, found);
                path.pop();
            }
        }
        Value::Object(map) => {
            for (key, item) in map {
                path.push(key.clone());
                found.push((path.clone(), true));
                texts(item, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Returns the documents with one text replaced.
fn replace_text(
    documents: &[Value],
    document: usize,
    (at, is_key): &(Vec<String>, bool),
    text: &str,
) -> String {
    let mut documents = documents.to_vec();
    let mut node = &mut documents[document];
    let (last, parents) = at.split_last().expect("a text is inside a document");
    for segment in parents {
        node = match node {
            Value::Array(items) => &mut items[segment.parse::<usize>().expect("an index")],
            other => &mut other[segment],
        };
    }
    match node {
        Value::Array(items) => items[last.parse::<usize>().expect("an index")] = text.into(),
        Value::Object(map) if *is_key => {
            let value = map.shift_remove(last).expect("the key");
            map.insert(text.to_owned(), value);
        }
        other => other[last] = text.into(),
    }
    let texts: Vec<String> = documents.iter().map(ToString::to_string).collect();
    texts.join("\n---\n")
}

/// Returns the plans of the first and the last case; `None` if the lab is refused.
fn build_plans(text: String) -> Option<Vec<Plan>> {
    let source = Source::from_bytes("<test>", text.into_bytes()).ok()?;
    let (scenario, warnings) = Scenario::load(&Sources::from(source)).ok()?;
    let chosen = SelectedLab {
        cases: (0..scenario.cases().len()).collect(),
        cli_name: scenario.name().to_owned(),
        scenario,
        warnings,
    };
    // Cases of a lab differ in what an axis patches; the first and the last cover both ends.
    let cases = chosen.scenario.cases();
    [cases.first(), cases.last()]
        .into_iter()
        .flatten()
        .map(|case| Some(prepare(&chosen, case, Duration::from_secs(1)).ok()?.plan))
        .collect()
}

/// Returns the input of each program by namespace.
fn program_inputs(plan: &Plan) -> BTreeMap<(String, &'static str), String> {
    let mut inputs = BTreeMap::new();
    for namespace in &plan.namespaces {
        let name = || namespace.name.clone();
        inputs.insert((name(), "ipset"), namespace.ipset.text().to_owned());
        let lines = namespace.nft.text().lines();
        let tables = lines.map(|line| line.trim_start_matches('\t').to_owned() + "\n");
        inputs.insert((name(), "nft"), tables.collect());
        if let Some(rules) = &namespace.iptables {
            inputs.insert((name(), "iptables"), rules.v4.text().to_owned());
            inputs.insert((name(), "ip6tables"), rules.v6.text().to_owned());
        }
    }
    inputs
}

/// Whether a line is of a kind that svclab writes.
fn is_known_line(program: &str, line: &str) -> bool {
    if program == "nft" {
        return !line.chars().any(char::is_control) && count_words(line).is_some();
    }
    let begins: &[&str] = if program == "ipset" {
        &["create ", "add "]
    } else {
        &["*", ":", "-A ", "-I ", "-D ", "-F ", "-N ", "COMMIT"]
    };
    begins.iter().any(|begin| line.starts_with(begin))
        && !line.chars().any(char::is_control)
        && (!line.starts_with('*') || ["*raw", "*mangle", "*nat", "*filter"].contains(&line))
        && (!line.starts_with("COMMIT") || line == "COMMIT")
}

/// Counts the words of a line, with the quoting rules of `iptables-restore`. Returns `None` if a
/// quotation does not end.
fn count_words(line: &str) -> Option<usize> {
    let (mut words, mut in_word, mut quoted) = (0, false, false);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if quoted => drop(letters.next()?),
            '"' => {
                quoted = !quoted;
                if !in_word {
                    words += 1;
                    in_word = true;
                }
            }
            ' ' | '\t' if !quoted => in_word = false,
            _ if !in_word => {
                words += 1;
                in_word = true;
            }
            _ => {}
        }
    }
    (!quoted).then_some(words)
}

/// For each program, the word counts of its lines.
type Shape = Vec<(&'static str, Vec<Option<usize>>)>;

/// Returns the word counts of each input, sorted: lines that are ordered by name may move.
fn shape(plan: &Plan) -> Shape {
    let mut shapes: Vec<_> = program_inputs(plan)
        .into_iter()
        .map(|((_, program), text)| {
            let mut lines: Vec<_> = text.lines().map(count_words).collect();
            lines.sort_unstable();
            (program, lines)
        })
        .collect();
    shapes.sort();
    shapes
}

/// Returns the locations of all texts. Of texts with the same role in one document, such as the
/// names of several ports, returns only the first.
fn text_locations() -> Vec<TextLocation> {
    let mut places = Vec::new();
    let mut known = BTreeSet::new();
    for (lab, documents) in labs().iter().enumerate() {
        for (document, value) in documents.iter().enumerate() {
            let mut found = Vec::new();
            texts(value, &mut Vec::new(), &mut found);
            for text in found {
                let is_index = |step: &&String| step.parse::<usize>().is_ok();
                let role: Vec<&str> = text
                    .0
                    .iter()
                    .map(|step| if is_index(&step) { "" } else { step })
                    .collect();
                if known.insert((lab, value["kind"].to_string(), role.join("/"), text.1)) {
                    places.push((lab, document, text));
                }
            }
        }
    }
    places
}

fn is_raw((at, _): &(Vec<String>, bool)) -> bool {
    at.iter()
        .any(|step| step == "leftovers" || step == "byHand")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn known_hostile_text_in_lab_adds_no_rule(
        place in prop::sample::select(text_locations()),
        hostile in prop::sample::select(HOSTILE.as_slice()),
        whole: bool,
    ) {
        check_adds_no_rule(&labs()[place.0], &place, hostile, whole)?;
    }

    #[test]
    fn random_hostile_text_in_lab_adds_no_rule(
        place in prop::sample::select(text_locations()),
        hostile in "[-a-z0-9 \"'\\\\\n\r\t\0:*#!,;/.$(){}%\u{1b}é]{1,24}",
    ) {
        check_adds_no_rule(&labs()[place.0], &place, &hostile, true)?;
    }
}

/// Tries every hostile text at every location, in the full suite only. Each processor runs a share
/// of the locations.
#[test]
fn every_hostile_text_at_every_location_adds_no_rule() {
    if !ordinary_or_full(false, true) {
        return;
    }
    let (labs, places) = (labs(), text_locations());
    let shares = std::thread::available_parallelism().map_or(1, NonZero::get);
    let accepted: usize = std::thread::scope(|scope| {
        let share = |first: usize| {
            let locations = places.iter().skip(first).step_by(shares);
            locations
                .map(|place| try_every_text(&labs[place.0], place))
                .sum()
        };
        let threads: Vec<_> = (0..shares)
            .map(|first| scope.spawn(move || -> usize { share(first) }))
            .collect();
        let ended = threads.into_iter().map(ScopedJoinHandle::join);
        ended
            .map(|taken| taken.expect("no text is rendered as a rule"))
            .sum()
    });
    let tried = places.len() * HOSTILE.len() * 2;
    println!(
        "{tried} texts in {} places, {accepted} accepted",
        places.len()
    );
}

/// Inserts each hostile text at a location. Returns the number of accepted labs.
fn try_every_text(documents: &[Value], place: &TextLocation) -> usize {
    let harmless = harmless_shapes(documents, place);
    let mut taken = 0;
    for hostile in HOSTILE {
        for whole in [true, false] {
            let tried = try_text(documents, place, hostile, whole, harmless.as_deref());
            let is_taken = tried.unwrap_or_else(|error| panic!("{place:?} {hostile:?}: {error}"));
            taken += usize::from(is_taken);
        }
    }
    taken
}

/// Returns the shapes of the plans with a harmless name at the location; `None` if the lab is
/// refused.
fn harmless_shapes(documents: &[Value], (_, document, at): &TextLocation) -> Option<Vec<Shape>> {
    let plans = build_plans(replace_text(documents, *document, at, HARMLESS))?;
    Some(plans.iter().map(shape).collect())
}

fn check_adds_no_rule(
    documents: &[Value],
    place: &TextLocation,
    hostile: &str,
    whole: bool,
) -> Result<(), TestCaseError> {
    let harmless = harmless_shapes(documents, place);
    try_text(documents, place, hostile, whole, harmless.as_deref()).map(drop)
}

/// Inserts a text at a location, either alone or appended to the harmless text. Returns whether the
/// lab is accepted.
fn try_text(
    documents: &[Value],
    (_, document, at): &TextLocation,
    hostile: &str,
    whole: bool,
    harmless: Option<&[Shape]>,
) -> Result<bool, TestCaseError> {
    let front = if whole { "" } else { HARMLESS };
    let text = format!("{front}{hostile}");
    let Some(plans) = build_plans(replace_text(documents, *document, at, &text)) else {
        return Ok(false);
    };
    for plan in &plans {
        for ((namespace, program), input) in program_inputs(plan) {
            for line in input.lines() {
                prop_assert!(
                    is_known_line(program, line) || is_raw(at),
                    "{namespace}: {program} is fed {line:?}"
                );
                prop_assert!(!line.chars().any(char::is_control), "{line:?}");
            }
        }
    }
    // A name in that location yields rules of the same shape.
    if let Some(harmless) = harmless.filter(|_| !is_raw(at)) {
        let shapes: Vec<_> = plans.iter().map(shape).collect();
        prop_assert_eq!(shapes.as_slice(), harmless);
    }
    Ok(true)
}

#[test]
fn shipped_labs_unchanged_give_known_lines() {
    // If svclab refused the unchanged labs, the tests above would test nothing.
    for documents in labs() {
        let texts: Vec<String> = documents.iter().map(ToString::to_string).collect();
        let plans = build_plans(texts.join("\n---\n")).expect("a valid lab");
        assert!(plans.iter().any(|plan| !program_inputs(plan).is_empty()));
        for plan in &plans {
            for ((_, program), input) in program_inputs(plan) {
                assert!(
                    input.lines().all(|line| is_known_line(program, line)),
                    "{input}"
                );
            }
        }
    }
    assert!(text_locations().len() > 100);
}

#[test]
fn rule_line_with_quotes_counts_words_as_iptables() {
    assert_eq!(
        count_words(r#"-A X -m comment --comment "a b" -j Y"#),
        Some(8)
    );
    assert_eq!(count_words(r#"-A X --comment "a \" b" -j Y"#), Some(6));
    assert_eq!(count_words(r#"-A X --comment "a"#), None);
}
