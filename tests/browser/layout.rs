//! Pages fit into narrow windows. Writes screenshots.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Shared;
use crate::report::{self, Layout, Report};
use crate::view::View;
use crate::webdriver::Browser;

/// Opens every page of the incidents in a narrow window.
pub fn check_width(shared: &Shared, layout: Layout) {
    check_report(shared, shared.incidents(layout));
}

/// Opens every page of the hostile labs in a narrow window.
pub fn check_hostile_width(shared: &Shared, layout: Layout) {
    check_report(shared, shared.hostile(layout));
}

fn check_report(shared: &Shared, report: &Report) {
    let browser = shared.browser();
    report.open_table(&browser);
    View::NARROW.apply(&browser);
    assert_fits(&browser, "the table");
    for case in report::cases(&browser) {
        case.open(&browser);
        browser.run(
            "document.querySelectorAll('details').forEach((each) => { each.open = true; })",
            &[],
        );
        assert_fits(&browser, &case.name);
    }
}

/// Asserts that only elements that are meant to scroll are wider than the window.
#[track_caller]
fn assert_fits(browser: &Browser, page: &str) {
    let width = browser.run("return document.scrollingElement.scrollWidth;", &[]);
    if width.as_u64() <= Some(u64::from(View::NARROW.width)) {
        return;
    }
    // The last elements are the innermost ones.
    let culprits = browser.run(
        "return [...document.body.querySelectorAll('*')]
           .filter((each) => each.checkVisibility()
             && !each.parentElement.closest('.scroll, .drawing, pre')
             && Math.max(each.scrollWidth, each.getBoundingClientRect().right) > innerWidth)
           .slice(-5).map((each) => each.outerHTML.slice(0, 200));",
        &[],
    );
    panic!("{page} is {width} px wide: {culprits}");
}

/// Writes pictures of the table, and of a case of each lab, in every view.
pub fn write_screenshots(shared: &Shared, layout: Layout) {
    let report = shared.incidents(layout);
    let browser = shared.browser();
    let directory = screenshots().join(layout.to_string());
    fs::create_dir_all(&directory).expect("a directory");
    report.open_table(&browser);
    let mut cases = report::cases(&browser);
    cases.dedup_by(|case, previous| case.lab() == previous.lab());
    for view in View::ALL {
        let write = |page: &str| {
            let name = format!("{page}-{}-{}.png", view.width, view.theme);
            let picture = browser.screenshot();
            fs::write(directory.join(name), picture).expect("a file");
        };
        report.open_table(&browser);
        view.apply(&browser);
        write("run");
        for case in &cases {
            case.open(&browser);
            view.apply(&browser);
            // The packets of the first connection, with the rules of the last hop of each, and the
            // headers of the first.
            browser.run(
                "const shown = [...document.querySelectorAll('.case')]
                   .find((each) => each.checkVisibility());
                 const connection = shown.querySelector('details.connection');
                 const packets = [...connection?.querySelectorAll('.packet') ?? []];
                 const hops = packets.map((packet) => [...packet.querySelectorAll('.hop')].pop());
                 const bytes = packets[0]?.querySelectorAll('.bytes') ?? [];
                 for (const each of [connection, ...hops, ...bytes]) {
                   each?.setAttribute('open', '');
                 }",
                &[],
            );
            write(case.lab());
        }
    }
}

/// Writes pictures of the open page in every view.
pub fn write_screenshot(browser: &Browser, page: &str) {
    let directory = screenshots();
    fs::create_dir_all(&directory).expect("a directory");
    for view in View::ALL {
        view.apply(browser);
        let name = format!("{page}-{}-{}.png", view.width, view.theme);
        fs::write(directory.join(name), browser.screenshot()).expect("a file");
    }
}

/// Returns the directory of the screenshots.
fn screenshots() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    target.expect("a directory").join("browser")
}
