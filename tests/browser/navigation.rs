//! Links, hops and the filter.

use serde_json::{Value, json};

use crate::Shared;
use crate::quiet::assert_quiet;
use crate::report::{self, Layout, Report};
use crate::webdriver::Browser;

/// Case that takes 1 s.
const SINGLE_CASE: &str = "canal-stale-rule/stale=removed,rpFilter=0,underlay=passes";

/// Returns the hop with the rule of "Decided by". Without that line, the first hop with a rewrite.
const FIND_DECIDING_HOP: &str = r"
    const section = [...document.querySelectorAll('.case')]
      .find((each) => each.checkVisibility());
    const title = [...section.querySelectorAll('dt')]
      .find((each) => each.textContent === 'Decided by');
    const hops = [...section.querySelectorAll('details.hop')];
    if (!title) {
      return hops.find((hop) => hop.matches('.rewritten'));
    }
    // NAMESPACE: TABLE CHAIN rule NUMBER: `RULE`
    const rule = title.nextElementSibling.querySelector('code').textContent
      .match(/^([^:]+): (.+?) rule (\d+)/);
    return hops.find((hop) => hop.querySelector('.detail strong').textContent === rule[1]
      && [...hop.querySelectorAll('.rules code')]
        .some((code) => code.textContent.startsWith(`${rule[2]} ${rule[3]}`)));
";

/// Clicks through the table to each case that ran, and opens the hop with the deciding rule.
pub fn check_rules(shared: &Shared, layout: Layout) {
    let report = shared.incidents(layout);
    let browser = shared.browser();
    for case in report.cases_that_ran(&browser) {
        report.open_table(&browser);
        case.click(&browser);
        let hop = browser.run(FIND_DECIDING_HOP, &[]);
        assert!(hop.is_object(), "{}: no hop", case.name);
        // A passing connection is closed.
        browser.run(
            "arguments[0].closest('details.connection').open = true;",
            std::slice::from_ref(&hop),
        );
        assert_eq!(visible_rules(&browser, &hop), 0, "{}", case.name);
        let summary = browser.run(
            "return arguments[0].querySelector('summary');",
            std::slice::from_ref(&hop),
        );
        browser.click(&summary);
        assert!(visible_rules(&browser, &hop) > 0, "{}", case.name);
    }
    assert_quiet(&browser, "the report");
}

/// Counts the visible rules of a hop.
fn visible_rules(browser: &Browser, hop: &Value) -> u64 {
    let count = browser.run(
        "return [...arguments[0].querySelectorAll('.rules li')]
           .filter((rule) => rule.checkVisibility()).length;",
        std::slice::from_ref(hop),
    );
    count.as_u64().expect("a number")
}

/// Opens each case by its link, and by the browser's history.
pub fn check_links(shared: &Shared, layout: Layout) {
    let report = shared.incidents(layout);
    let browser = shared.browser();
    report.open_table(&browser);
    for case in report::cases(&browser) {
        case.open(&browser);
        report.open_table(&browser);
        case.click(&browser);
        browser.go_back();
        report::wait_for_table(&browser);
        browser.go_forward();
        case.wait(&browser);
        let back = browser.run(
            "return [...document.querySelectorAll('.back a')].find((link) => link.checkVisibility());",
            &[],
        );
        browser.click(&back);
        report::wait_for_table(&browser);
    }
    // A link to an element that the section of a case does not have.
    for case in report::cases(&browser) {
        if case.has_section() {
            browser.open("about:blank");
            browser.open(&format!("{}:none", case.address));
            case.wait(&browser);
        }
    }
    // A link to a case that the report does not have.
    browser.open("about:blank");
    browser.open(&format!("{}#case-none", report.address()));
    report::wait_for_table(&browser);
    assert_quiet(&browser, "the report");
}

/// Opens a report of one case, which shows that case.
pub fn check_single_case(shared: &Shared, layout: Layout) {
    let report = Report::new(layout, &[SINGLE_CASE.to_owned()]);
    let browser = shared.browser();
    browser.open(&report.address());
    browser.wait_until("document.querySelector('.case h1')?.checkVisibility()", &[]);
    let back = browser.run("return document.querySelector('.back a');", &[]);
    browser.click(&back);
    report::wait_for_table(&browser);
    let cases = report::cases(&browser);
    assert_eq!(cases.len(), 1, "{cases:?}");
    cases[0].click(&browser);
    assert_quiet(&browser, "the report");
}

/// Types into the filter, and compares the visible rows and their number.
pub fn check_filter(shared: &Shared, layout: Layout) {
    let report = shared.incidents(layout);
    let browser = shared.browser();
    report.open_table(&browser);
    let cases = report::cases(&browser);
    let all = cases.len();
    let expect = |count: usize| {
        browser.wait_until(
            "document.getElementById('shown').textContent === arguments[0]
             && [...document.querySelectorAll('#cases tbody tr')]
               .filter((row) => row.checkVisibility()).length === arguments[1]",
            &[json!(format!("{count} of {all}")), json!(count)],
        );
    };
    let count = |filter: &dyn Fn(&str) -> bool| {
        let names = cases.iter().map(|case| case.name.as_str());
        names.filter(|name| filter(name)).count()
    };
    let type_filter = |text: &str| {
        browser.press_keys("/");
        browser.wait_until("document.activeElement.id === 'filter'", &[]);
        browser.run(
            "arguments[0].select()",
            &[browser.run("return document.activeElement", &[])],
        );
        browser.press_keys(text);
    };
    expect(all);
    type_filter("canal");
    expect(count(&|name| name.contains("canal")));
    // The field has the focus now, so a slash is text.
    browser.press_keys("-stale-rule/");
    expect(count(&|name| name.contains("canal-stale-rule/")));
    browser.run("document.activeElement.blur()", &[]);
    // Every word must match, in any order and case.
    type_filter("PRESENT canal");
    expect(count(&|name| {
        name.contains("canal") && name.contains("present")
    }));
    browser.run("document.activeElement.blur()", &[]);
    type_filter("no such case");
    expect(0);
    // Enter does not leave the page.
    browser.press_keys("\u{e007}");
    expect(0);
    browser.run(
        "const filter = document.getElementById('filter');
         filter.value = ''; filter.dispatchEvent(new Event('input', {bubbles: true}));",
        &[],
    );
    expect(all);
    // Choices apply together with the text.
    let choose = |field: &str, value: &str| {
        browser.run(
            "const field = document.getElementById(arguments[0]);
             field.value = arguments[1];
             field.dispatchEvent(new Event('input', {bubbles: true}));",
            &[json!(field), json!(value)],
        );
    };
    choose("filter-lab", "canal-stale-rule");
    expect(count(&|name| name.starts_with("canal-stale-rule/")));
    choose("slower", "100000");
    expect(0);
    choose("slower", "");
    choose("filter-lab", "");
    let passing = cases.iter().filter(|case| case.result == "PASS").count();
    if passing < all {
        choose("filter-result", "PASS");
        expect(passing);
        choose("filter-result", "");
    } else {
        // One result is no choice.
        let field = browser.run("return document.getElementById('filter-result');", &[]);
        assert_eq!(field, json!(null));
    }
    expect(all);
    check_sorting(&browser);
    // The key shows the table again.
    let case = &cases[0];
    if case.has_section() {
        case.click(&browser);
        browser.press_keys("/");
        report::wait_for_table(&browser);
        browser.wait_until("document.activeElement.id === 'filter'", &[]);
    }
    assert_quiet(&browser, "the table");
}

/// Clicks the head of the times: the slowest row is first, then last, then the order is as before.
fn check_sorting(browser: &Browser) {
    let times = || {
        let rows = browser.run(
            "return [...document.querySelectorAll('#cases tbody tr')]
               .map((row) => Number(row.dataset.ms));",
            &[],
        );
        let times = rows.as_array().expect("rows").iter();
        times
            .map(|time| time.as_u64().expect("a time"))
            .collect::<Vec<_>>()
    };
    let click = || {
        let button = browser.run("return document.querySelector('#time button');", &[]);
        browser.click(&button);
        times()
    };
    let before = times();
    let mut ascending = before.clone();
    ascending.sort_unstable();
    let descending: Vec<u64> = ascending.iter().rev().copied().collect();
    assert_eq!(click(), descending);
    assert_eq!(click(), ascending);
    assert_eq!(click(), before);
}
