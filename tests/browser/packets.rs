//! The comparison of cases, and the timeline.

use serde_json::json;

use crate::Shared;
use crate::quiet::assert_quiet;
use crate::report::{Case, Layout, OPEN_CASES};
use crate::webdriver::Browser;

/// Lab with cases that fail and cases that succeed, on any kernel.
const LAB: &str = "canal-stale-rule";

/// Opens the failing case of the lab.
fn open_failing(shared: &Shared, layout: Layout, browser: &Browser) -> (Case, Case) {
    let report = shared.incidents(layout);
    let cases = report.cases_that_ran(browser);
    let find = |stale: &str| {
        let mut own = cases.iter().filter(|case| case.lab() == LAB);
        own.find(|case| case.name.contains(stale)).expect("a case")
    };
    let (failing, succeeding) = (find("stale=present"), find("stale=removed"));
    failing.open(browser);
    (failing.clone(), succeeding.clone())
}

/// The failing case is beside the succeeding one, and a link leads there.
pub fn check_comparison(shared: &Shared, layout: Layout) {
    let browser = shared.browser();
    let (failing, succeeding) = open_failing(shared, layout, &browser);
    let found = browser.run(
        &format!(
            "const section = {OPEN_CASES}[0];
             const titles = [...section.querySelectorAll('h2')];
             const title = titles.find((each) => each.textContent === 'Beside another case');
             const link = title.nextElementSibling.querySelector('a');
             const table = [...section.querySelectorAll('table.beside')].pop();
             return {{
               case: link.textContent,
               text: title.nextElementSibling.textContent,
               differs: table.querySelectorAll('tr.differs').length,
               sides: [...table.querySelectorAll('thead th')].slice(1)
                 .map((side) => side.textContent),
               link,
             }};"
        ),
        &[],
    );
    assert_eq!(found["case"], json!(succeeding.name), "{}", failing.name);
    let text = found["text"].as_str().expect("a text");
    assert!(text.contains("stale: removed instead of present"), "{text}");
    assert!(found["differs"].as_u64() > Some(0), "{found}");
    assert_eq!(
        found["sides"],
        json!([
            "Other case: call #1 connected",
            "This case: call #1 timeout"
        ])
    );
    browser.click(&found["link"]);
    succeeding.wait(&browser);
    assert_quiet(&browser, "the comparison");
}

/// A button of the timeline shows the packets of its period only. A mark leads to its packet.
pub fn check_timeline(shared: &Shared, layout: Layout) {
    let browser = shared.browser();
    let cases = shared.incidents(layout).cases_that_ran(&browser);
    // Its probes wait for answers that never come, so they are in several periods on any machine.
    let case = cases.iter().find(|case| case.lab() == "service-changes");
    case.expect("a case").open(&browser);
    let visible = "[...document.querySelectorAll('.case [data-at]')]
        .filter((item) => !item.closest('[hidden]')).length";
    let count = || {
        let count = browser.run(&format!("return {visible};"), &[]);
        count.as_u64().expect("a number")
    };
    let all = count();
    let press = |index: usize| {
        let button = browser.run(
            "return [...document.querySelectorAll('.periods button')][arguments[0]];",
            &[json!(index)],
        );
        browser.click(&button);
    };
    press(1);
    let some = count();
    assert!(some > 0 && some < all, "{some} of {all}");
    // The mark of a packet that is not shown.
    browser.run(
        "const marks = [...document.querySelectorAll('svg.times a')];
         const mark = marks.find((mark) =>
           document.getElementById(mark.getAttribute('href').slice(1)).hidden);
         mark.dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}));",
        &[],
    );
    browser.wait_until(
        "/p[0-9]+$/.test(location.hash) && \
         document.getElementById(decodeURIComponent(location.hash.slice(1))).checkVisibility()",
        &[],
    );
    press(1);
    assert_eq!(count(), all);
    assert_quiet(&browser, "the timeline");
}
