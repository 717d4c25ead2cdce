use super::*;
use crate::additions::Answer;
use crate::case_additions::ProbeFixes;
use crate::case_details::CaseDetails;
use crate::results::Document;
use svclab_experiment::why::{
    ChangeResult, DescribedChange, Fix, Origin, ProbeCount, ProposedChange, TriedChanges,
};
use svclab_runner::results::{Results, fixture};

/// Renders results without evidence.
fn page(results: &Results) -> String {
    let mut page = Page::new(None);
    for case in &results.cases {
        let details = CaseDetails::new(case, None, "svclab run");
        let files = Vec::new();
        page.add_section("", &CasePage::new(details, files))
            .unwrap();
    }
    let document = &Document::from(results);
    let run = ShownRun {
        label: "",
        document,
    };
    page.render(&[run], None).unwrap()
}

/// Renders the section of each case.
fn sections(results: &Results) -> String {
    let sections = results.cases.iter().map(|case| {
        let details = CaseDetails::new(case, None, "svclab run");
        let files = Vec::new();
        case::section("case", &CasePage::new(details, files))
            .markup
            .into_string()
    });
    sections.collect::<Vec<_>>().join("\n")
}

#[test]
fn page_of_run_lists_every_case() {
    let results = fixture::results();
    let page = page(&results);
    let (head, body) = page.split_once("<body>").expect("a body");
    let body = body.split_once("<noscript>").expect("a note").0;
    insta::assert_snapshot!(body.replace("><", ">\n<"));
    assert!(head.contains("Content-Security-Policy"));
    for case in &results.cases {
        assert!(body.contains(&case.case), "{}", case.case);
    }
}

#[test]
fn sections_of_cases_match_snapshot() {
    insta::assert_snapshot!(sections(&fixture::results()).replace("><", ">\n<"));
}

#[test]
fn page_of_one_case_is_complete_without_script() {
    let mut results = fixture::results();
    results.cases.truncate(1);
    let page = page(&results);
    assert!(page.contains("Run it again"));
    assert!(!page.contains("application/gzip"));
}

#[test]
fn page_of_large_case_is_compressed() {
    let mut results = fixture::results();
    results.cases.truncate(1);
    results.cases[0].probes[0].name = "x".repeat(page::MAX_PLAIN_BYTES);
    let text = page(&results);
    assert!(text.contains("application/gzip") && text.contains("noscript"));
}

#[test]
fn page_loads_nothing_and_has_no_inline_style() {
    let results = fixture::results();
    for text in [page(&results), sections(&results)] {
        for forbidden in [" style=", "src=", "<link", "@import", "url(", "onclick"] {
            assert!(!text.contains(forbidden), "{forbidden}");
        }
        let addresses = text.matches("http").count();
        let allowed = text.matches("http://www.w3.org/2000/svg").count();
        let policy = text.matches("http-equiv").count();
        assert_eq!(addresses, allowed + policy);
    }
}

#[test]
fn page_hostile_names_stay_text() {
    let hostile = "</script><script>alert(1)</script><b>\u{202e}\u{1b}[31m";
    let mut results = fixture::results();
    for case in &mut results.cases {
        case.case = format!("{hostile}/{}", case.case);
        case.lab = hostile.to_owned();
        case.kernel = hostile.to_owned();
        for probe in &mut case.probes {
            probe.name = hostile.to_owned();
            probe.from = hostile.to_owned();
        }
    }
    let (page, sections) = (page(&results), sections(&results));
    assert_eq!(page.matches("<script>").count(), 1);
    assert!(!sections.contains("<script"));
    for text in [page, sections] {
        assert!(!text.contains("<b>"));
        assert!(!text.contains(['\u{202e}', '\u{1b}']));
    }
}

#[test]
fn page_of_answer_without_cases_has_no_table() {
    let page = Page::new(Some(Answer {
        title: "svclab bisect".to_owned(),
        text: "the rule <b> breaks it\n".to_owned(),
        ..Answer::default()
    }));
    let document = &Document::from(&Results::new(std::collections::BTreeMap::new(), Vec::new()));
    let run = ShownRun {
        label: "",
        document,
    };
    let page = page.render(&[run], None).unwrap();
    assert!(page.contains("<title>svclab bisect</title>"), "{page}");
    assert!(page.contains("the rule &lt;b&gt; breaks it"), "{page}");
    assert!(!page.contains("<table"), "{page}");
}

#[test]
fn section_of_case_names_fixes_and_missing_expectations() {
    let results = fixture::results();
    let mut details = CaseDetails::new(&results.cases[0], None, "svclab run");
    details.additions.unjudged = true;
    details.additions.fixes = Some(vec![ProbeFixes {
        probe: "call".to_owned(),
        fixes: Vec::new(),
    }]);
    let case = CasePage::new(details, Vec::new());
    let mut page = Page::new(None);
    let path = "lab/case/index.html";
    page.add_page(&case, path.into(), path.to_owned(), "../../")
        .unwrap();
    let pages: Vec<_> = page.pages().map(Result::unwrap).collect();
    let [(written, document)] = pages.as_slice() else {
        panic!("{pages:?}");
    };
    assert_eq!(written.to_str(), Some(path));
    assert!(document.contains("<title>svclab: not judged canal-"));
    assert!(document.contains("../../index.html"));
    let markup = case::section("case", &case).markup.into_string();
    assert!(markup.contains("Not judged"), "{markup}");
    assert!(markup.contains("no tried change helps"), "{markup}");
    assert!(!markup.contains("PASS"), "{markup}");
    let (_, markdown) = markup.split_once("<pre class=\"copy\">").expect("Markdown");
    insta::assert_snapshot!(markdown.split("</pre>").next().unwrap());
}

#[test]
fn fixes_are_grouped_and_useless_changes_listed() {
    let results = fixture::results();
    let mut details = CaseDetails::new(&results.cases[0], None, "svclab run");
    let described = |change: ProposedChange, origin| DescribedChange {
        description: change.to_string(),
        origin,
        commands: Vec::new(),
        change,
    };
    let fix = |change, origin| Fix {
        changes: vec![described(change, origin)],
        necessary: Vec::new(),
    };
    let fixes = vec![
        fix(ProposedChange::MasqueradeAll, Origin::Configured),
        fix(ProposedChange::StrictArp, Origin::Generated),
    ];
    let probe = |name: &str, fixes: &[Fix]| ProbeFixes {
        probe: name.to_owned(),
        fixes: fixes.to_vec(),
    };
    let other = [fix(ProposedChange::BeLiberal, Origin::Configured)];
    details.additions.fixes = Some(vec![
        probe("<a>", &fixes),
        probe("b", &other),
        probe("c", &fixes),
    ]);
    details.additions.useless_changes = vec![TriedChanges {
        changes: vec![described(
            ProposedChange::FlannelMasquerade,
            Origin::Configured,
        )],
        result: ChangeResult::Finished {
            probes: vec![ProbeCount {
                probe: "<a>".to_owned(),
                connected: 0,
                total: 8,
                made: 0,
            }],
            worse: vec!["d".to_owned()],
        },
    }];
    details.additions.untried_pairs = 3;
    let case = CasePage::new(details, Vec::new());
    let markup = case::section("case", &case).markup.into_string();
    let (_, fixes) = markup.split_once("<dt>Fix</dt>").expect("fixes");
    let (fixes, _) = fixes.split_once("<dt>").expect("the next entry");
    insta::assert_snapshot!(fixes.replace("<dd", "\n<dd").replace("<li", "\n<li"));
}

#[test]
fn page_of_stopped_run_names_cases_that_did_not_run() {
    let results = fixture::stopped_results();
    let page = page(&results);
    let body = page.split_once("<body>").expect("a body").1;
    let head = body.split_once("<form").expect("a filter").0;
    insta::assert_snapshot!(head.replace("><", ">\n<"));
    let sections = sections(&results);
    let tries = sections.split_once("Earlier tries").expect("tries").1;
    let tries = tries.split_once("<dt>").expect("another fact").0;
    insta::assert_snapshot!(tries.replace("><", ">\n<"));
}
