//! The capture of a case contains the packets of its evidence, and tshark reads it and finds the same
//! headers.

use std::fs;
use std::process::Command;

use serde_json::Value;
use svclab_test_support::ordinary_or_full;

use crate::Shared;
use crate::headers::{self, Protocols};
use crate::report::{self, Layout, Report};

/// Compares every case of the incident labs.
pub fn check(shared: &Shared, layout: Layout) {
    let protocols = compare(shared, shared.incidents(layout));
    // Only the labs with IPVS, which run in guests, have ICMP errors.
    let in_guests = ordinary_or_full(None, Some("icmp"));
    for expected in ["ipv4", "tcp", "udp", "vxlan"].into_iter().chain(in_guests) {
        assert!(protocols.contains_key(expected), "{protocols:?}");
    }
}

/// Compares cases with IPv6.
pub fn check_ipv6(shared: &Shared, layout: Layout) {
    let case = |mode: &str| format!("conformance/dual-stack/mode={mode},version=v1.36");
    let report = Report::new(layout, &["iptables", "nftables"].map(case));
    let protocols = compare(shared, &report);
    for expected in ["ipv6", "tcp", "udp", "icmpv6"] {
        assert!(protocols.contains_key(expected), "{protocols:?}");
    }
}

/// Compares packets in an IPIP tunnel, whose interface not every host has.
pub fn check_ipip(shared: &Shared, layout: Layout) {
    // The page of a single case has no table.
    let labs = [
        "tests/browser/ipip.yaml",
        "conformance/dual-stack/mode=iptables,version=v1.36",
    ];
    let report = Report::on_kernel("--kernel=6.12", layout, &labs.map(str::to_owned));
    let browser = shared.browser();
    let cases = report.cases_that_ran(&browser);
    let case = cases.iter().find(|case| case.name == "ipip");
    case.expect("the case").open(&browser);
    let evidence = report::read_file(&browser, "evidence.json");
    let evidence: Value = serde_json::from_slice(&evidence).expect("JSON");
    let frames = evidence["frames"].as_array().expect("frames");
    let is_tunnelled = |frame: &Value| {
        let headers = frame["headers"].as_array().expect("headers");
        let protocols = headers
            .iter()
            .filter_map(|header| header["protocol"].as_str());
        protocols.eq(["ethernet", "ipv4", "ipv4", "tcp"])
    };
    assert!(frames.iter().any(is_tunnelled), "{frames:#?}");
    compare(shared, &report);
}

/// Compares the numbers of packets of every case, and the headers of shown packets. Returns the
/// protocols of the headers.
fn compare(shared: &Shared, report: &Report) -> Protocols {
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
    protocols
}

/// Counts the packets of the probes and of the steps.
fn count_packets(evidence: &Value) -> usize {
    let stages = evidence["evidence"]["stages"].as_array().expect("stages");
    let lists = stages
        .iter()
        .flat_map(|stage| [&stage["packets"], &stage["step"]["packets"]]);
    lists.filter_map(Value::as_array).map(Vec::len).sum()
}
