//! Changes values in a lab. The result stays YAML with the shape of a lab, which bytes changed at
//! random seldom are. A value is replaced by another value or by the value of another location,
//! renamed, or removed.

use serde_json::{Map, Value};

use super::choices::Choices;

/// Maximum number of changed places.
const CHANGES: usize = 6;

/// Texts that occur in labs, or are similar to such texts.
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

/// Changes some values of a lab's documents. New values are arbitrary or come from `grafts`.
pub fn change_lab(lab: &mut [Value], grafts: &[Vec<Value>], choices: &mut Choices<'_>) {
    for _ in 0..=choices.below(CHANGES) {
        let mut source = choices.pick(grafts);
        let graft = pick(&mut source, choices).clone();
        change(pick(lab, choices), graft, choices);
    }
}

/// Renders documents as JSON, which is YAML.
pub fn render_documents(documents: &[Value]) -> String {
    let texts: Vec<String> = documents.iter().map(Value::to_string).collect();
    texts.join("\n---\n")
}

/// Picks a value of any document, at any depth.
fn pick<'a>(documents: &'a mut [Value], choices: &mut Choices<'_>) -> &'a mut Value {
    let index = choices.below(documents.len());
    let mut place = &mut documents[index];
    loop {
        let inside = match place {
            Value::Array(items) => items.len(),
            Value::Object(map) => map.len(),
            _ => 0,
        };
        if inside == 0 || choices.below(8) == 7 {
            return place;
        }
        let index = choices.below(inside);
        place = match place {
            Value::Array(items) => &mut items[index],
            Value::Object(map) => map.values_mut().nth(index).expect("a value"),
            _ => unreachable!("a scalar has no values"),
        };
    }
}

fn change(place: &mut Value, graft: Value, choices: &mut Choices<'_>) {
    match (choices.below(8), place) {
        (0, place) => *place = graft,
        (1, place) => *place = choices.pick(&TEXTS).into(),
        (2, place) => *place = any_text(choices).into(),
        (3, place) => *place = choices.number().cast_signed().into(),
        (4, place) => *place = Value::Null,
        // Removes an item, repeats an item, or appends one.
        (5, Value::Array(items)) if !items.is_empty() => {
            items.remove(choices.below(items.len()));
        }
        (6, Value::Array(items)) if !items.is_empty() => {
            let again = items[choices.below(items.len())].clone();
            items.push(again);
        }
        (_, Value::Array(items)) => items.push(graft),
        (5, Value::Object(map)) if !map.is_empty() => {
            let index = choices.below(map.len());
            *map = without(map, index);
        }
        (_, Value::Object(map)) => {
            let name = match choices.below(2) {
                0 => choices.pick(&TEXTS).to_owned(),
                _ => any_text(choices),
            };
            map.insert(name, graft);
        }
        (_, Value::String(text)) => text.push_str(choices.pick(&TEXTS)),
        (_, place) => *place = (choices.below(2) == 1).into(),
    }
}

fn any_text(choices: &mut Choices<'_>) -> String {
    let length = choices.below(16);
    let bytes: Vec<u8> = (0..length).map(|_| choices.byte()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn without(map: &Map<String, Value>, removed: usize) -> Map<String, Value> {
    let kept = map
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != removed);
    kept.map(|(_, (key, value))| (key.clone(), value.clone()))
        .collect()
}
