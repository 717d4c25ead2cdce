//! A lab that is well-formed YAML and says anything: what is read as YAML is where
//! the work begins, and bytes that are changed at random seldom come so far. Some
//! places of a lab that is right are given other values, values of other places,
//! or other names, or are left out.

#![no_main]

mod lab;

use std::sync::LazyLock;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

/// So many places are changed at most.
const CHANGES: u8 = 6;

/// Labs that are right.
static LABS: LazyLock<Vec<Vec<Value>>> = LazyLock::new(|| {
    let texts = [
        include_str!("../../../lab/scenario/example.yaml"),
        include_str!("../../../topologies/canal-stale-rule.yaml"),
        include_str!("../../../topologies/clb-hairpin.yaml"),
        include_str!("../../../topologies/local-ingress.yaml"),
        include_str!("../../../topologies/missing-cluster-cidr.yaml"),
    ];
    let documents = |text| serde_saphyr::from_multiple(text).expect("a lab that is right");
    texts.into_iter().map(documents).collect()
});

/// What stands somewhere in a lab, or is near to that.
const TEXTS: [&str; 24] = [
    "",
    "0",
    "-1",
    "65536",
    "1..3",
    "18446744073709551616",
    "10.0.0.1",
    "10.0.0.1/33",
    "::1",
    "fd00::/8",
    "0.0.0.0/0",
    "255.255.255.255",
    "node-1",
    "pod/default/client",
    "host/laptop",
    "lb/default/nginx-ingress:443",
    "service/default/nginx-ingress:https",
    "SYN from pod/default/client to node-1:80",
    "1s",
    "-A INPUT -j DROP",
    "v1.99",
    "all",
    "\u{1b}[2J",
    "a\nb",
];

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = changed(&mut Unstructured::new(bytes)) {
        lab::is_taken_or_refused(text.as_bytes());
    }
});

/// A lab of which some places are changed, as JSON, which YAML holds.
fn changed(choices: &mut Unstructured<'_>) -> Result<String> {
    // Half of them are of the smallest, which is tried ten times as fast.
    let at = if choices.ratio(1, 2)? {
        0
    } else {
        choices.choose_index(LABS.len())?
    };
    let mut lab = LABS[at].clone();
    for _ in 0..choices.int_in_range(1..=CHANGES)? {
        let graft = pick(&mut choices.choose(&LABS)?.clone(), choices)?.clone();
        change(pick(&mut lab, choices)?, graft, choices)?;
    }
    let texts: Vec<String> = lab.iter().map(Value::to_string).collect();
    Ok(texts.join("\n---\n"))
}

/// Some place in some document.
fn pick<'a>(documents: &'a mut [Value], choices: &mut Unstructured<'_>) -> Result<&'a mut Value> {
    let at = choices.choose_index(documents.len())?;
    let mut place = &mut documents[at];
    loop {
        let inside = match place {
            Value::Array(items) => items.len(),
            Value::Object(map) => map.len(),
            _ => 0,
        };
        if inside == 0 || choices.ratio(1, 8)? {
            return Ok(place);
        }
        let at = choices.choose_index(inside)?;
        place = match place {
            Value::Array(items) => &mut items[at],
            Value::Object(map) => map.values_mut().nth(at).expect("one of them"),
            _ => unreachable!("nothing is inside"),
        };
    }
}

fn change(place: &mut Value, graft: Value, choices: &mut Unstructured<'_>) -> Result<()> {
    match (choices.int_in_range(0..=7)?, place) {
        (0, place) => *place = graft,
        (1, place) => *place = (*choices.choose(&TEXTS)?).into(),
        (2, place) => *place = choices.arbitrary::<&str>()?.into(),
        (3, place) => *place = choices.arbitrary::<i64>()?.into(),
        (4, place) => *place = Value::Null,
        // One less, one twice, one more.
        (5, Value::Array(items)) if !items.is_empty() => {
            items.remove(choices.choose_index(items.len())?);
        }
        (6, Value::Array(items)) if !items.is_empty() => {
            let again = items[choices.choose_index(items.len())?].clone();
            items.push(again);
        }
        (_, Value::Array(items)) => items.push(graft),
        (5, Value::Object(map)) if !map.is_empty() => {
            let at = choices.choose_index(map.len())?;
            *map = without(map, at);
        }
        (_, Value::Object(map)) => {
            let name = if choices.ratio(1, 2)? {
                (*choices.choose(&TEXTS)?).to_owned()
            } else {
                choices.arbitrary::<String>()?
            };
            map.insert(name, graft);
        }
        (_, Value::String(text)) => {
            text.push_str(choices.choose(&TEXTS)?);
        }
        (_, place) => *place = choices.arbitrary::<bool>()?.into(),
    }
    Ok(())
}

fn without(map: &Map<String, Value>, at: usize) -> Map<String, Value> {
    let kept = map.iter().enumerate().filter(|(index, _)| *index != at);
    kept.map(|(_, (key, value))| (key.clone(), value.clone()))
        .collect()
}
