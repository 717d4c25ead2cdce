//! The capture of a case contains the packets of its evidence, and tshark reads it and finds the same
//! headers.

use std::fs;
use std::process::Command;

use serde_json::Value;
use svclab_test_support::ordinary_or_full;

use crate::Shared;
use crate::headers::{self, Protocols};
use crate::report::{self, Layout};

/// Compares the numbers of packets of every case, and the headers of shown packets.
pub fn check(shared: &Shared, layout: Layout) {
    let report = shared.incidents(layout);
    let browser = shared.browser();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("capture.pcapng");
    let mut protocols = Protocols::new();
    for case in report.cases_that_ran(&browser) {
        case.open(&browser);
        fs::write(&file, report::read_file(&browser, "capture.pcapng")).expect("a file");
        let output = Command::new("tshark")
            .args(["-n", "-T", "fields", "-e", "frame.number", "-r"])
            .arg(&file)
            .output()
            .expect("tshark is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", case.name);
        let frames = String::from_utf8_lossy(&output.stdout).lines().count();

        let evidence = report::read_file(&browser, "evidence.json");
        let evidence: Value = serde_json::from_slice(&evidence).expect("JSON");
        assert_eq!(evidence["case"], case.name);
        assert!(frames > 0, "{}", case.name);
        assert_eq!(frames, count_packets(&evidence), "{}", case.name);
        for (name, count) in headers::check(&case.name, &evidence, &file) {
            *protocols.entry(name).or_default() += count;
        }
    }
    // Only the labs with IPVS, which run in guests, have ICMP errors.
    let in_guests = ordinary_or_full(None, Some("icmp"));
    for expected in ["ipv4", "tcp", "udp", "vxlan"].into_iter().chain(in_guests) {
        assert!(protocols.contains_key(expected), "{protocols:?}");
    }
}

/// Counts the packets of the probes and of the steps.
fn count_packets(evidence: &Value) -> usize {
    let stages = evidence["evidence"]["stages"].as_array().expect("stages");
    let lists = stages
        .iter()
        .flat_map(|stage| [&stage["packets"], &stage["step"]["packets"]]);
    lists.filter_map(Value::as_array).map(Vec::len).sum()
}
