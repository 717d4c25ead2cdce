//! Writes a run as `JUnit` XML at the end of the run. Each lab is a suite and each case a test.
//!
//! The XML is valid against the schema `junit-10.xsd` of the xunit plugin of Jenkins. Tests have no
//! properties and no files there, so that these are in the output of a test and in the suite.

use std::io::{self, Write};
use std::time::Duration;

use indexmap::{IndexMap, IndexSet};
use quick_junit::{
    NonSuccessKind, Report, SerializeError, TestCase, TestCaseStatus, TestRerun, TestSuite,
};

use crate::results::{CaseDocument, Document};
use crate::run_text::case::CaseRenderer;
use crate::run_text::unexpected::{describe_stopped, unexpected_lines};
use crate::text::repository::Repository;
use crate::text::{self, certificate};
use crate::writer::{Options, Writer};
use svclab_runner::certify::Certificate;
use svclab_runner::results::{CaseStatus, NotRunCase, short_name};
use svclab_runner::run::Event;

/// Writer of `JUnit` XML.
pub(crate) struct Junit<'a, W> {
    out: W,
    options: Options<'a>,
}

impl<'a, W: Write> Junit<'a, W> {
    pub(crate) fn new(out: W, options: Options<'a>) -> Self {
        Self { out, options }
    }
}

impl<W: Write> Writer for Junit<'_, W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::RunEnded { results, duration } => {
                self.document(&Document::from(&**results), *duration)
            }
            _ => Ok(()),
        }
    }

    fn document(&mut self, document: &Document, duration: Duration) -> io::Result<()> {
        let report = report(document, duration, CaseRenderer::new(&self.options));
        let xml = render(&report).map_err(io::Error::other)?;
        self.out.write_all(xml.as_bytes())?;
        self.out.flush()
    }
}

/// Renders a report. quick-junit 0.8 writes the number of skipped tests also in the root element,
/// where the schema does not permit it, and the two noncharacters that XML 1.0 excludes (2.2).
fn render(report: &Report) -> Result<String, SerializeError> {
    let skipped = format!(" skipped=\"{}\"", report.skipped);
    let xml = report.to_string()?.replacen(&skipped, "", 1);
    Ok(xml.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}"))
}

fn report(results: &Document, took: Duration, renderer: CaseRenderer<'_>) -> Report {
    let mut report = Report::new("svclab");
    report.set_time(took);
    let by_lab = results.by_lab();
    let repository = Repository::find();
    for (lab, cases) in &by_lab {
        let not_run = results.not_run.iter();
        let mut suite = TestSuite::new(*lab);
        suite.set_time(cases.iter().map(|case| time(case)).sum());
        for (tool, version) in &results.tools {
            suite.add_property((tool, version));
        }
        let warnings = results
            .warnings
            .iter()
            .filter(|warning| warning.lab == *lab);
        let warnings: Vec<String> = warnings.map(ToString::to_string).collect();
        if !warnings.is_empty() {
            suite.set_system_err(warnings.join("\n"));
        }
        let tests = cases.iter().map(|case| {
            let mut test = test_case(case, renderer);
            test.name = unique_name(case, cases).into();
            test
        });
        suite.add_test_cases(tests);
        if let Some(place) = cases.iter().find_map(|case| case.location.as_ref()) {
            let file = repository.path(&place.file);
            suite.extra.insert("file".into(), file.into());
        }
        suite.add_test_cases(not_run.filter(|case| case.lab == *lab).map(not_run_test));
        report.add_test_suite(suite);
    }
    // Labs of which no case ran.
    let mut others = IndexMap::<&str, TestSuite>::new();
    let not_run = results.not_run.iter();
    for case in not_run.filter(|case| !by_lab.contains_key(case.lab.as_str())) {
        let suite = others.entry(case.lab.as_str());
        let suite = suite.or_insert_with(|| TestSuite::new(case.lab.as_str()));
        suite.add_test_case(not_run_test(case));
    }
    report.add_test_suites(others.into_values());
    // Results of the run itself.
    let mut suite = TestSuite::new("svclab");
    if let Some(stopped) = describe_stopped(results) {
        suite.add_test_case(incomplete_run(&stopped));
    }
    if results.has_failing_flaky_cases() {
        suite.add_test_case(incomplete_run(
            "a case is flaky, and `--flaky fail` was given",
        ));
    }
    if results.interrupted {
        suite.add_test_case(incomplete_run(
            "the run was interrupted; unfinished cases are missing",
        ));
    }
    if let Some(lost) = crate::run_text::describe_lost(results) {
        suite.add_test_case(incomplete_run(&lost));
    }
    if let Some(certificate) = &results.certificate {
        suite.add_test_case(certificate_test(certificate));
    }
    if !suite.test_cases.is_empty() {
        report.add_test_suite(suite);
    }
    report
}

/// Returns a skipped test for a case that did not run.
fn not_run_test(case: &NotRunCase) -> TestCase {
    let mut status = TestCaseStatus::skipped();
    status.set_message("not run");
    let mut test = TestCase::new(short_name(&case.lab, &case.case), status);
    test.set_classname(&case.lab);
    test
}

/// Returns a failed test for an incomplete run. A tool that only counts failures would otherwise
/// treat the run as passed.
fn incomplete_run(why: &str) -> TestCase {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
    status.set_message(why);
    let mut case = TestCase::new("run", status);
    case.set_classname("svclab");
    case
}

/// Returns a test for the certificate, which passes if the host is unchanged.
fn certificate_test(certificate: &Certificate) -> TestCase {
    let text = certificate::render_text(certificate);
    let status = if certificate.unchanged {
        TestCaseStatus::success()
    } else {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_message(certificate::headline(certificate));
        status.set_description(text.as_str());
        status
    };
    let mut case = TestCase::new("certificate", status);
    case.set_classname("svclab");
    case.set_system_out(text);
    case
}

/// Returns the name of a case within its suite. Labs of the same name in other files, and runs on
/// other kernels, have cases of the same name.
fn unique_name(case: &CaseDocument, suite: &[&CaseDocument]) -> String {
    let mut name = case.short_name().to_owned();
    let others = || {
        let others = suite
            .iter()
            .filter(|other| other.short_name() == case.short_name());
        others.filter(|other| !std::ptr::eq(**other, case))
    };
    if others().any(|other| other.named != case.named) && !case.named.is_empty() {
        name.clone_from(&case.named);
    }
    if others().any(|other| other.named == case.named) {
        name = format!("{name}@{}", case.kernel);
    }
    name
}

fn test_case(case: &CaseDocument, renderer: CaseRenderer<'_>) -> TestCase {
    let mut test = TestCase::new(case.short_name(), status(case, renderer));
    test.set_classname(&case.lab);
    test.set_time(time(case));
    let kernel = match case.kernel.as_str() {
        "" => String::new(),
        kernel => format!("kernel: {kernel}\n"),
    };
    let output = kernel + &CaseRenderer::render_observed(case);
    if !output.is_empty() {
        test.set_system_out(output);
    }
    test
}

/// Returns the status of a test. Earlier tries are elements `flakyFailure` and `flakyError` of a test
/// that passed, `rerunFailure` and `rerunError` of another, as in the schema of Maven Surefire
/// (`surefire-test-report.xsd`, version 3.0).
fn status(case: &CaseDocument, renderer: CaseRenderer<'_>) -> TestCaseStatus {
    let mut status = match failure_kind(case) {
        None => TestCaseStatus::success(),
        Some(kind) => {
            let mut status = TestCaseStatus::non_success(kind);
            status.set_message(message(case));
            if let Some(error) = &case.error {
                status.set_type(error.kind.description());
            }
            status.set_description(renderer.plain_details(case));
            status
        }
    };
    status.add_reruns(case.failed_tries.iter().map(failed_try));
    status
}

/// Returns an earlier try of a case.
fn failed_try(earlier: &CaseDocument) -> TestRerun {
    let mut rerun = TestRerun::new(failure_kind(earlier).unwrap_or(NonSuccessKind::Error));
    rerun.set_message(message(earlier));
    let error = earlier.error.as_ref();
    rerun.set_type(error.map_or("unexpected result", |error| error.kind.description()));
    rerun.set_stack_trace(unexpected_lines(earlier).join("\n"));
    rerun
}

/// Returns the kind of a failed test. `None` if the case passed.
fn failure_kind(case: &CaseDocument) -> Option<NonSuccessKind> {
    match case.result {
        CaseStatus::Pass | CaseStatus::Flaky => None,
        CaseStatus::Fail => Some(NonSuccessKind::Failure),
        CaseStatus::Error => Some(NonSuccessKind::Error),
    }
}

/// Returns the message that CI shows for a test: the names of what was not as expected, or the
/// first line of the error.
fn message(case: &CaseDocument) -> String {
    if let Some(error) = &case.error {
        return error.message.lines().next().unwrap_or_default().to_owned();
    }
    let probes = case.probes.iter().filter(|probe| !probe.holds);
    let checks = case.checks().filter(|check| !check.holds);
    let steps = case.steps.iter().filter(|step| !step.holds);
    let names: IndexSet<String> = probes
        .map(|probe| probe.name.clone())
        .chain(checks.map(|check| check.target.clone()))
        .chain(steps.map(|step| step.name.clone()))
        .collect();
    format!("not as expected: {}", text::join(names, ", "))
}

fn time(case: &CaseDocument) -> Duration {
    Duration::from_millis(case.duration_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::tests::render_run;
    use std::process::Command;
    use svclab_runner::results::{CaseResult, ErrorKind, Results, RunError, fixture};

    #[test]
    fn report_labs_are_suites_and_cases_are_tests() {
        insta::assert_snapshot!(render_run(Format::Junit, Options::default()));
    }

    fn xml_of(results: &Results) -> String {
        let (document, options) = (Document::from(results), Options::default());
        let report = report(&document, Duration::ZERO, CaseRenderer::new(&options));
        render(&report).unwrap()
    }

    /// Schema of Jenkins. `scripts/setup.sh` defines its version, and downloads it.
    fn schema_path() -> String {
        let script = "source scripts/setup.sh; \
                      { junit_schema_is_there || fetch_junit_schema; } && junit_schema_path";
        let output = Command::new("bash")
            .args(["-c", script])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .output()
            .expect("bash is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let path = String::from_utf8(output.stdout).expect("a path");
        path.trim_end().to_owned()
    }

    #[test]
    fn report_is_valid_against_the_schema_of_jenkins() {
        let schema = schema_path();
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("junit.xml");
        let validate = |xml: &str| {
            std::fs::write(&file, xml).expect("a file");
            let output = Command::new("xmllint")
                .args(["--noout", "--schema", &schema])
                .arg(&file)
                .output()
                .expect("xmllint is installed");
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() {
                Ok(())
            } else {
                Err(errors)
            }
        };
        let mut interrupted = fixture::stopped_results();
        interrupted.interrupted = true;
        interrupted.certificate = Some(fixture::broken_certificate());
        let hostile = CaseResult {
            error: Some(RunError {
                kind: ErrorKind::Input,
                message: "]]> \u{1} \" <a&b> \u{fffe}\n\t".to_owned(),
                remedy: None,
            }),
            result: CaseStatus::Error,
            ..fixture::passed("lab/<\"&\u{1b}>")
        };
        let failed_twice = CaseResult {
            failed_tries: fixture::flaky().failed_tries,
            ..fixture::timed_out_case()
        };
        let cases = vec![fixture::flaky(), failed_twice, hostile];
        let odd = Results::new(std::collections::BTreeMap::new(), cases);
        let none = Results::new(std::collections::BTreeMap::new(), Vec::new());
        for results in [fixture::results(), interrupted, odd, none] {
            let xml = xml_of(&results);
            assert_eq!(validate(&xml), Ok(()), "{xml}");
        }
        // The schema refuses other attributes.
        let invalid =
            xml_of(&fixture::results()).replacen("<testcase ", "<testcase file=\"a\" ", 1);
        let errors = validate(&invalid).expect_err("not valid");
        assert!(errors.contains("'file' is not allowed"), "{errors}");
    }

    #[test]
    fn report_certificate_is_a_test() {
        for (certificate, failures) in [
            (fixture::certificate(), 0),
            (fixture::broken_certificate(), 1),
        ] {
            let mut results = Results::new(std::collections::BTreeMap::new(), Vec::new());
            results.certificate = Some(certificate);
            let xml = xml_of(&results);
            let read = Report::deserialize_from_str(&xml).unwrap();
            assert_eq!((read.tests, read.failures), (1, failures), "{xml}");
        }
    }

    #[test]
    fn report_interrupted_run_has_an_error() {
        let mut results = Results::new(
            std::collections::BTreeMap::new(),
            vec![fixture::passed("lab/a")],
        );
        results.interrupted = true;
        let xml = xml_of(&results);
        let read = Report::deserialize_from_str(&xml).unwrap();
        assert_eq!((read.tests, read.errors), (2, 1), "{xml}");
        insta::assert_snapshot!(xml);
    }

    #[test]
    fn report_stopped_run_has_flaky_and_skipped_tests() {
        let options = Options::default();
        let took = Duration::from_secs(3);
        let report = report(
            &Document::from(&fixture::stopped_results()),
            took,
            CaseRenderer::new(&options),
        );
        let xml = render(&report).unwrap();
        let read = Report::deserialize_from_str(&xml).unwrap();
        // The error is the incomplete run.
        assert_eq!((read.tests, read.failures, read.errors), (6, 0, 2), "{xml}");
        insta::assert_snapshot!(xml);
    }

    #[test]
    fn report_cases_of_one_name_are_different_tests() {
        let variants = [("", "6.1"), ("", "6.12"), ("other/lab.yaml/a", "6.12")];
        let ran = variants.map(|(named, kernel)| CaseResult {
            named: named.to_owned(),
            kernel: kernel.to_owned(),
            ..fixture::passed("lab/a")
        });
        let run = Results::new(std::collections::BTreeMap::new(), ran.to_vec());
        let options = Options::default();
        let written = report(
            &Document::from(&run),
            Duration::ZERO,
            CaseRenderer::new(&options),
        );
        let all = &written.test_suites[0].test_cases;
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["a@6.1", "a@6.12", "other/lab.yaml/a"]);
    }

    #[test]
    fn report_counts_match_the_summary() {
        let xml = render_run(Format::Junit, Options::default());
        let read = Report::deserialize_from_str(&xml).unwrap();
        let summary = fixture::results().summary;
        let wanted = (
            summary.passed + summary.failed + summary.errors,
            summary.failed,
            summary.errors,
        );
        assert_eq!((read.tests, read.failures, read.errors), wanted);
    }
}
