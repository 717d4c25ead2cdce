//! axe-core finds no barriers in the pages.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::Shared;
use crate::report::{self, Layout};
use crate::view::View;
use crate::webdriver::Browser;

/// Text of axe-core. `scripts/setup.sh` defines its version, and downloads it.
static AXE: LazyLock<String> = LazyLock::new(|| {
    let output = Command::new("bash")
        .args([
            "-c",
            "source scripts/setup.sh; { axe_is_there || fetch_axe; } && axe_path",
        ])
        .current_dir(svclab_test_support::root())
        .output()
        .expect("bash is installed");
    let path = String::from_utf8(output.stdout).expect("a path");
    let path = PathBuf::from(path.trim_end());
    std::fs::read_to_string(&path).unwrap_or_else(|error| {
        let reason = String::from_utf8_lossy(&output.stderr);
        panic!("{}: {error}\n{reason}", path.display())
    })
});

/// Elements of the page of a case to open. axe-core would need minutes for all hops of a case.
const OPENED: &str = "details.connection:nth-of-type(-n+2), details.connection:nth-of-type(1) .hop, \
                      .files ~ details";

/// Checks the table and one case of each lab in every view, with the rules of the first connection.
pub fn check(shared: &Shared, layout: Layout) {
    let report = shared.incidents(layout);
    let browser = shared.browser();
    report.open_table(&browser);
    let mut cases = report::cases(&browser);
    cases.dedup_by(|case, previous| case.lab() == previous.lab());
    let mut violations = Vec::new();
    for view in View::ALL {
        report.open_table(&browser);
        view.apply(&browser);
        violations.extend(find_violations(&browser, &format!("{view:?} table")));
        for case in &cases {
            case.open(&browser);
            view.apply(&browser);
            browser.run(
                "document.querySelectorAll(arguments[0]).forEach((each) => { each.open = true; })",
                &[json!(OPENED)],
            );
            let page = format!("{view:?} {}", case.name);
            violations.extend(find_violations(&browser, &page));
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// Returns the violations in the open page: the rule, the first elements, and the cause.
fn find_violations(browser: &Browser, page: &str) -> Vec<String> {
    let script = format!(
        "{}; return axe.run(document, {{resultTypes: ['violations']}}).then((results) =>
           results.violations.map((violation) => {{
             const nodes = violation.nodes.slice(0, 3).map((node) =>
               node.html.slice(0, 200) + ' ' + node.failureSummary.replaceAll('\\n', ' '));
             return violation.id + ' ' + violation.nodes.length + ' times: ' + nodes.join(' | ');
           }}));",
        *AXE
    );
    let violations = browser.run(&script, &[]);
    let violations = violations.as_array().expect("a list").iter();
    let texts = violations.filter_map(Value::as_str);
    texts.map(|text| format!("{page}: {text}")).collect()
}
