//! Pages make no network request and print nothing to the console.

use serde_json::Value;

use crate::Shared;
use crate::report::{self, Layout};
use crate::view::View;
use crate::webdriver::Browser;

/// Opens every page of a report in every view.
pub fn check(shared: &Shared, layout: Layout) {
    let report = shared.incidents(layout);
    let browser = shared.browser();
    report.open_table(&browser);
    let cases = report::cases(&browser);
    for view in View::ALL {
        view.apply(&browser);
        for case in &cases {
            report.open_table(&browser);
            case.click(&browser);
            assert_quiet(&browser, &format!("{view:?} {}", case.name));
        }
    }
}

/// Asserts that the logs since the last call contain no message and no request, except for pages on
/// disk.
#[track_caller]
pub fn assert_quiet(browser: &Browser, page: &str) {
    let messages = browser.take_log("browser");
    assert!(messages.is_empty(), "{page}: {messages:?}");
    let events = browser.take_log("performance");
    let requests: Vec<Value> = events
        .iter()
        .filter_map(|event| {
            let event: Value = serde_json::from_str(&event.message).ok()?;
            let event = &event["message"];
            let is_request = event["method"] == "Network.requestWillBeSent";
            is_request.then(|| event["params"].clone())
        })
        .collect();
    for request in &requests {
        let address = request["request"]["url"].as_str().unwrap_or_default();
        assert!(
            request["type"] == "Document" && address.starts_with("file:///"),
            "{page} requests {address}"
        );
    }
}
