//! Tests of the HTML report in headless Chromium. One run of the incident labs in each layout, and
//! one chromedriver, serve all tests.
//!
//! The tests run in parallel, each with a browser of its own. They wait for conditions in the page,
//! and never for a fixed time. Screenshots are in `target/browser`.

mod accessibility;
mod capture;
mod flows;
mod headers;
mod hostile;
mod layout;
mod navigation;
mod packets;
mod quiet;
mod report;
mod view;
mod webdriver;

use std::process::ExitCode;
use std::sync::{Arc, LazyLock};

use libtest_mimic::{Arguments, Trial};

use report::{Layout, Report};
use svclab_test_support::ordinary_or_full;
use webdriver::{Browser, Driver};

/// Path of the program under test.
const SVCLAB: &str = env!("CARGO_BIN_EXE_svclab");

/// Resources of all tests. Each is created when the first test needs it.
struct Shared {
    driver: LazyLock<Driver>,
    incidents: [LazyLock<Report>; 2],
    hostile: [LazyLock<Report>; 2],
}

impl Shared {
    fn new() -> Self {
        Self {
            driver: LazyLock::new(Driver::start),
            incidents: [
                LazyLock::new(|| Report::of_incidents(Layout::File)),
                LazyLock::new(|| Report::of_incidents(Layout::Directory)),
            ],
            hostile: [
                LazyLock::new(|| hostile::report(Layout::File)),
                LazyLock::new(|| hostile::report(Layout::Directory)),
            ],
        }
    }

    /// Starts a browser.
    fn browser(&self) -> Browser<'_> {
        Browser::start(&self.driver)
    }

    /// Returns the report of the incident labs.
    fn incidents(&self, layout: Layout) -> &Report {
        &self.incidents[layout as usize]
    }

    /// Returns the report of the hostile labs.
    fn hostile(&self, layout: Layout) -> &Report {
        &self.hostile[layout as usize]
    }
}

/// Test of a report in one layout.
type Test = fn(&Shared, Layout);

fn main() -> ExitCode {
    let tests: [(&str, Test); 12] = [
        ("page_makes_no_request_or_error", quiet::check),
        ("case_click_opens_deciding_rule", navigation::check_rules),
        ("case_link_opens_case", navigation::check_links),
        ("filter_shows_matching_rows", navigation::check_filter),
        ("case_is_beside_succeeding_case", packets::check_comparison),
        ("timeline_selects_packets", packets::check_timeline),
        ("capture_has_all_packets", capture::check),
        ("hostile_text_stays_text", hostile::check),
        ("page_has_no_barriers", accessibility::check),
        ("page_does_not_scroll_sideways", layout::check_width),
        (
            "hostile_page_does_not_scroll_sideways",
            layout::check_hostile_width,
        ),
        ("screenshots_are_written", layout::write_screenshots),
    ];
    let shared = Arc::new(Shared::new());
    let trial = |name: &str, layout: Layout, test: Test| {
        let shared = Arc::clone(&shared);
        Trial::test(format!("{name}::{layout}"), move || {
            test(&shared, layout);
            Ok(())
        })
    };
    let mut trials: Vec<Trial> = tests
        .iter()
        .flat_map(|(name, test)| Layout::ALL.map(|layout| trial(name, layout, *test)))
        .collect();
    trials.push(trial(
        "single_case_is_shown",
        Layout::File,
        navigation::check_single_case,
    ));
    trials.push(trial(
        "flows_that_differ_are_shown",
        Layout::File,
        flows::check,
    ));
    trials.push(trial(
        "compared_flows_are_filtered",
        Layout::File,
        flows::check_verification,
    ));
    trials.push(trial(
        "capture_of_ipv6_has_all_packets",
        Layout::File,
        capture::check_ipv6,
    ));
    if ordinary_or_full(false, true) {
        trials.push(trial(
            "capture_of_tunnel_has_all_packets",
            Layout::File,
            capture::check_ipip,
        ));
    }
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    // Ends chromedriver, and removes the reports.
    drop(shared);
    conclusion.exit_code()
}
