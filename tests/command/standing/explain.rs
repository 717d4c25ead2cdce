//! Tests explanations of packets in a running lab, which describe the actual state, whatever the
//! lab planned.

use serde_json::Value;

use super::{Labs, assert_told};
use crate::by_hand::{self, CONNECTS, UNFILTERED};
use crate::settled::settled;
use crate::standing_labs::Runtime;
use crate::support::{assert_fits, stderr, stdout, uninformed};

fn standing(case: &str) -> Runtime {
    let runtime = Runtime::of(uninformed);
    runtime.up(case);
    runtime
}

#[test]
fn rules_that_somebody_added_are_named_by_their_texts() {
    insta::assert_snapshot!(by_hand::rules(&standing(CONNECTS)));
}

#[test]
fn routes_that_somebody_deleted_are_missed() {
    insta::assert_snapshot!(by_hand::routes(&standing(CONNECTS)));
}

#[test]
fn settings_that_somebody_made_are_named() {
    insta::assert_snapshot!(by_hand::settings(&standing(UNFILTERED)));
}

#[test]
fn what_no_counter_tells_is_not_known() {
    let said = by_hand::uncounted(&standing(CONNECTS));
    assert!(said.contains("came to node-2 by flannel.1, and what became of it is not known"));
    insta::assert_snapshot!(said);
}

#[test]
fn a_probe_is_told_of_with_its_way() {
    let runtime = standing(CONNECTS);
    let probe = [
        "probe",
        "node-1",
        "service/default/app:80",
        "--explain",
        "--max-wait=500ms",
    ];
    let drop = ["-I", "FORWARD", "-p", "tcp", "-j", "DROP"];
    let drop = [&["exec", "node-2", "--", "iptables-nft"], &drop[..]].concat();
    assert_eq!(runtime.run(&drop).status.code(), Some(0));
    let output = runtime.run(&probe);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    insta::assert_snapshot!(settled(&stdout(&output)));
    // `-v` prints every rule; without `--explain`, only the verdict is printed.
    let all = runtime.run(&[&probe[..], &["-v"]].concat());
    assert!(stdout(&all).contains("nat PREROUTING"), "{all:?}");
    let verdict = runtime.run(&probe[..3]);
    assert_eq!(stdout(&verdict).lines().count(), 2, "{verdict:?}");
}

#[test]
fn the_lab_s_own_probes_are_told_of_as_it_stands() {
    let runtime = standing(CONNECTS);
    let asked = ["explain", "--standing"];
    let output = runtime.run(&asked);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    insta::assert_snapshot!(settled(&stdout(&output)));
    // A unique prefix is sufficient for the name of the lab; probes can be selected.
    let data = ["canal-stale-rule", "--format=json", "--probe=call"];
    let output = runtime.run(&[&asked[..], &data].concat());
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_fits(&told, include_str!("../../schema/journeys.v1.json"));
    assert_eq!(told["cases"][0]["expected"], Value::Null);
    assert_eq!(told["cases"][0]["connections"][0]["verdict"], "connected");
}

#[test]
fn what_does_not_stand_is_not_explained() {
    let labs = Labs::none();
    let explain = |more: &[&str]| {
        labs.runtime
            .run(&[&["explain", "--standing"], more].concat())
    };
    assert_told!(labs, explain(&[]));
    labs.runtime.up(&labs.case("Local"));
    assert_told!(labs, explain(&["another"]));
    assert_told!(labs, explain(&["--probe", "nobody"]));
    assert_told!(labs, explain(&["one", "two"]));
    assert_told!(labs, explain(&["--kernel", "host"]));
    labs.runtime.up(&labs.case("Cluster"));
    assert_told!(labs, explain(&[]));
    let all = ["probe", "node-1", "192.168.50.11:1", "-v"];
    assert_told!(labs, labs.runtime.run(&all));
}
