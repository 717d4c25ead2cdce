//! Converts the XDP programs of an interface (iproute2 7.1, `ip/iplink_xdp.c`, `xdp_dump_json` and
//! `xdp_dump`; `lib/bpf_legacy.c`, `bpf_dump_prog_info`).

use super::value::Value;
use super::{push, push_member};

/// Returns the word in the first line: `xdp/id:15`.
pub(super) fn mode_word(xdp: &Value) -> String {
    let mode = xdp.get("mode").map_or_else(String::new, Value::to_string);
    let word = match mode.as_str() {
        "1" => "xdp".to_owned(),
        "2" => "xdpgeneric".to_owned(),
        "3" => "xdpoffload".to_owned(),
        "4" => "xdpmulti".to_owned(),
        other => format!("xdp[{other}]"),
    };
    let number = xdp.get("prog").and_then(|program| program.get("id"));
    match number {
        Some(number) => format!("{word}/id:{number}"),
        None => word,
    }
}

/// Returns the lines of the programs: `prog/xdp id 15 name filter tag 3b185187f1855c4c jited`.
pub(super) fn program_lines(xdp: &Value) -> String {
    let mut text = String::new();
    if let Some(program) = xdp.get("prog") {
        push_program(&mut text, "", program);
    }
    let is_multiple = xdp.get("mode").is_some_and(|mode| mode.to_string() == "4");
    let attached = xdp.get("attached").map_or(&[][..], Value::items);
    for attached in attached.iter().filter(|_| is_multiple) {
        let mode = attached.get("mode").map(Value::to_string);
        let mode = match mode.as_deref() {
            Some("1") => "drv",
            Some("2") => "generic",
            _ => "offload",
        };
        if let Some(program) = attached.get("prog") {
            push_program(&mut text, mode, program);
        }
    }
    text
}

fn push_program(text: &mut String, mode: &str, program: &Value) {
    text.push_str("\n    ");
    push(text, format!("prog/xdp{mode}"));
    for (name, value) in program.members() {
        match (name.as_str(), value) {
            ("jited", Value::Number(number)) if number == "0" => {}
            ("jited", _) => push(text, name),
            _ => push_member(text, name, value),
        }
    }
}
