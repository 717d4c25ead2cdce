//! Tests the CI templates in `ci/`: runs each shell step as the forge would, and checks the
//! published files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};

use quick_junit::{NonSuccessKind, Report, TestCaseStatus};
use serde_json::Value;
use sha2::Digest as _;
use svclab_report::results::Document;
use svclab_runner::results::CaseStatus;
use svclab_test_support::ordinary_or_full;
use svclab_test_support::programs::agent;

use crate::SVCLAB;
use crate::support::{LAB, project, stderr};

/// Cases without timeouts; the second needs IPVS, which this machine may lack.
const LABS: &str = "canal-stale-rule/stale=removed,rpFilter=1,underlay=passes \
    clb-hairpin/policy=Cluster,ingress=both,balancer=internal,rpFilter=0,byHand=nothing";

/// Directory that a forge gives to a job: the user's repository, with svclab beside it.
pub(super) struct Workspace {
    directory: tempfile::TempDir,
    pub(super) variables: BTreeMap<String, String>,
}

impl Workspace {
    /// Creates the workspace. With `as_expected`, the user's labs pass; otherwise one case fails.
    pub(super) fn new(variables: &Value, as_expected: bool) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        symlink(project(), root.join("svclab")).expect("a link");
        fs::create_dir(root.join("labs")).expect("a directory");
        let good = LAB.replace("{name: lab}", "{name: good}");
        fs::write(root.join("labs/good.yaml"), &good).expect("a lab");
        let other_lab = good.replace("{name: good}", "{name: other}");
        let other_lab_text = if as_expected {
            other_lab
        } else {
            // Changes the expectation of one of the two cases.
            other_lab.replacen("seenSource: pod/default/client", "seenSource: node-1", 1)
        };
        fs::write(root.join("labs/other.yaml"), other_lab_text).expect("a lab");
        // Tests share fetched kernels and snapshots.
        let guests = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
        fs::create_dir_all(&guests).expect("a directory");
        fs::create_dir(root.join(".svclab")).expect("a directory");
        symlink(guests, root.join(".svclab/cache")).expect("a link");
        let here = root.to_string_lossy();
        let variables = variables.as_object().expect("variables").iter();
        let mut variables: BTreeMap<String, String> = variables
            .map(|(name, value)| {
                let value = value.as_str().expect("text");
                // The repository has no variables.
                let value = if value.starts_with("${{ vars.") {
                    ""
                } else {
                    value
                };
                let value = value
                    .replace("${{ github.workspace }}", &here)
                    .replace("$CI_PROJECT_DIR", &here);
                (name.clone(), value)
            })
            .collect();
        variables.insert("LABS".to_owned(), LABS.to_owned());
        let output = root.join("output");
        let output = output.to_string_lossy().into_owned();
        variables.insert("GITHUB_OUTPUT".to_owned(), output);
        Self {
            directory,
            variables,
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Links svclab to the place where `ci/install` would install it.
    fn install(&self) {
        let programs = Path::new(&self.variables["SVCLAB_PREFIX"]).join("bin");
        if programs.exists() {
            return;
        }
        fs::create_dir_all(&programs).expect("a directory");
        symlink(SVCLAB, programs.join("svclab")).expect("a link");
        symlink(agent(), programs.join("svclab-agent")).expect("a link");
    }

    /// Runs a step as forges do.
    pub(super) fn run(&self, step: &str) -> Output {
        // The step builds svclab, which only the full test run does. Otherwise, the tested svclab
        // is linked to the same place.
        let builds = ordinary_or_full(false, true);
        let step = if step == "svclab/ci/install" && !builds {
            self.install();
            "test -x svclab/ci/install"
        } else {
            step
        };
        Command::new("bash")
            .args(["-e", "-o", "pipefail", "-c", step])
            .current_dir(self.path())
            .env_remove("SVCLAB_TOPOLOGIES")
            .env_remove("SVCLAB_KERNEL")
            .env("NO_COLOR", "1")
            .envs(&self.variables)
            .output()
            .expect("bash starts")
    }

    pub(super) fn run_successfully(&self, step: &str) -> Output {
        let output = self.run(step);
        assert!(output.status.success(), "{step}: {}", stderr(&output));
        output
    }

    /// Compares the `JUnit` and JSON results of a run. Returns the number of cases for each
    /// outcome.
    pub(super) fn compare_results(&self, junit: &str, json: &str) -> BTreeMap<CaseStatus, usize> {
        let read = |file: &str| {
            let text = fs::read_to_string(self.path().join(file));
            text.unwrap_or_else(|error| panic!("{file}: {error}"))
        };
        let results: Document = serde_json::from_str(&read(json)).expect("results");
        let report = Report::deserialize_from_str(&read(junit)).expect("JUnit");
        let count_in_report = |wanted: CaseStatus| {
            let cases = report
                .test_suites
                .iter()
                .flat_map(|suite| &suite.test_cases);
            let has_outcome = |status: &TestCaseStatus| match status {
                TestCaseStatus::Success { .. } => wanted == CaseStatus::Pass,
                TestCaseStatus::NonSuccess { kind, .. } => match kind {
                    NonSuccessKind::Failure => wanted == CaseStatus::Fail,
                    NonSuccessKind::Error => wanted == CaseStatus::Error,
                },
                TestCaseStatus::Skipped { .. } => panic!("nothing is skipped"),
            };
            cases.filter(|case| has_outcome(&case.status)).count()
        };
        let mut came_to = BTreeMap::new();
        for outcome in [CaseStatus::Pass, CaseStatus::Fail, CaseStatus::Error] {
            let of_results = results.cases.iter();
            let count = of_results.filter(|case| case.result == outcome).count();
            assert_eq!(count, count_in_report(outcome), "{outcome:?}");
            came_to.insert(outcome, count);
        }
        assert_eq!(report.tests, results.cases.len());
        came_to
    }
}

pub(super) fn parse_yaml(file: &str) -> Value {
    let text = fs::read_to_string(project().join("ci").join(file)).expect("a file of ci/");
    serde_saphyr::from_str(&text).expect("YAML")
}

pub(super) fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().expect("a list").iter();
    items
        .map(|item| item.as_str().expect("text").to_owned())
        .collect()
}

pub(super) fn counts(pass: usize, fail: usize) -> BTreeMap<CaseStatus, usize> {
    BTreeMap::from([
        (CaseStatus::Pass, pass),
        (CaseStatus::Fail, fail),
        (CaseStatus::Error, 0),
    ])
}

#[test]
fn github_template_steps_run_and_publish_results() {
    let job = &parse_yaml("github.yaml")["jobs"]["svclab"];
    let workspace = Workspace::new(&job["env"], false);
    let mut statuses = BTreeMap::new();
    let mut published = Vec::new();
    for step in job["steps"].as_array().expect("steps") {
        let name = step["name"].as_str().expect("every step has a name");
        if let Some(run) = step["run"].as_str() {
            let output = workspace.run(run);
            // After a failed step, only steps with this condition run.
            let failed_before = statuses.values().any(|status| *status != Some(0));
            assert!(
                !failed_before || step["if"] == "${{ !cancelled() }}",
                "{name}"
            );
            if name == "Run your labs" {
                let printed = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(
                    printed.contains("::error file=labs/other.yaml"),
                    "{printed}{}",
                    stderr(&output)
                );
            } else {
                assert!(output.status.success(), "{name}: {}", stderr(&output));
            }
            statuses.insert(name, output.status.code());
        } else if name == "Publish results" {
            assert_eq!(step["if"], "${{ !cancelled() }}");
            let paths = step["with"]["path"].as_str().expect("paths");
            published = paths.lines().map(str::to_owned).collect();
        }
    }
    assert_eq!(statuses["Run your labs"], Some(1));
    assert_eq!(
        published,
        [
            "named.xml",
            "named.json",
            "named-report",
            "own.xml",
            "own.json",
            "own-report",
        ]
        .map(|name| format!(".svclab/results/{name}"))
    );
    for path in &published {
        assert!(workspace.path().join(path).exists(), "{path}");
    }
    let results = |name: &str| {
        let file = |kind: &str| format!(".svclab/results/{name}.{kind}");
        workspace.compare_results(&file("xml"), &file("json"))
    };
    assert_eq!(results("named"), counts(2, 0));
    assert_eq!(results("own"), counts(3, 1));
    // The cache key is one line that starts with the kernel version.
    let output = fs::read_to_string(workspace.path().join("output")).expect("an output");
    let key = output.strip_prefix("key=").expect("a key").trim_end();
    assert!(
        key.starts_with(|first: char| first.is_ascii_digit()),
        "{key}"
    );
    assert!(!key.contains(char::is_whitespace), "{key}");
}

#[test]
fn gitlab_template_jobs_run_and_publish_results() {
    let jobs = parse_yaml("gitlab.yaml");
    let common = &jobs[".svclab"];
    let mut tried = 0;
    for (name, job) in jobs.as_object().expect("jobs") {
        if name == ".svclab" {
            continue;
        }
        assert_eq!(job["extends"], ".svclab", "{name}");
        let is_own = name == "your labs";
        let mut workspace = Workspace::new(&common["variables"], true);
        if !is_own {
            assert!(job["variables"]["LABS"].is_string());
        }
        for step in texts(&common["before_script"]) {
            // These steps download from the forge and the distribution.
            if !["apt-get ", "git clone "]
                .iter()
                .any(|start| step.starts_with(start))
            {
                workspace.run_successfully(&step);
            }
        }
        for step in texts(&job["script"]) {
            workspace.run_successfully(&step);
        }
        assert_eq!(job["artifacts"]["when"], "always", "{name}");
        let junit = job["artifacts"]["reports"]["junit"].as_str();
        let paths = texts(&job["artifacts"]["paths"]);
        for path in &paths {
            assert!(workspace.path().join(path).exists(), "{path}");
        }
        let came_to = workspace.compare_results(junit.expect("a report"), &paths[0]);
        assert_eq!(came_to, counts(if is_own { 4 } else { 2 }, 0), "{name}");
        workspace.variables.clear();
        tried += 1;
    }
    assert_eq!(tried, 2);
}

#[test]
fn actions_are_pinned_by_digest() {
    let texts = ["ci/github.yaml", "ci/release.yaml", "ci/shards/github.yaml"]
        .map(|file| fs::read_to_string(project().join(file)).expect("the template"));
    let uses: Vec<&str> = texts
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| line.split_once("uses: "))
        .map(|(_, action)| action)
        .collect();
    assert!(!uses.is_empty());
    for action in uses {
        let (_, reference) = action.split_once('@').expect("a reference");
        let (digest, version) = reference.split_once(" # v").expect("a version");
        let is_digest = digest.len() == 40 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_digest && !version.is_empty(), "{action}");
    }
}

#[test]
fn ci_install_package_is_unpacked_after_its_checksum() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    let programs = root.join("svclab-1.2.3-x86_64-linux/bin");
    fs::create_dir_all(&programs).expect("a directory");
    for name in ["svclab", "svclab-agent"] {
        let program = programs.join(name);
        fs::write(&program, format!("#!/bin/sh\necho {name} 1.2.3\n")).expect("a program");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("permissions");
    }
    let package = root.join("svclab-1.2.3-x86_64-linux.tar.gz");
    let status = Command::new("tar")
        .args(["-czf"])
        .arg(&package)
        .args(["-C".as_ref(), root.as_os_str()])
        .arg("svclab-1.2.3-x86_64-linux")
        .status();
    assert!(status.expect("tar starts").success());
    let bytes = fs::read(&package).expect("the package");
    let digest = data_encoding::HEXLOWER.encode(&sha2::Sha256::digest(&bytes));
    let prefix = root.join("prefix");
    let install = |package: &Path, sha256: &str| {
        Command::new(project().join("ci/install"))
            .env("SVCLAB_PREFIX", &prefix)
            .env("SVCLAB_PACKAGE", package)
            .env("SVCLAB_PACKAGE_SHA256", sha256)
            .output()
            .expect("a script")
    };
    let other = install(&package, &"0".repeat(64));
    assert_eq!(other.status.code(), Some(3), "{}", stderr(&other));
    let missing = install(&root.join("none.tar.gz"), &digest);
    assert_eq!(missing.status.code(), Some(3), "{}", stderr(&missing));
    let line = format!("{digest}  svclab-1.2.3-x86_64-linux.tar.gz");
    let whole_line = install(&package, &line);
    let http = install(Path::new("http://127.0.0.1/x.tar.gz"), &digest);
    let unset = install(&package, "");
    for refused in [&whole_line, &http, &unset] {
        assert_eq!(refused.status.code(), Some(3), "{}", stderr(refused));
    }
    assert!(!prefix.exists());
    let messages = [other, missing, whole_line, http, unset].map(|output| stderr(&output));
    let messages = messages
        .join("\n")
        .replace(&root.display().to_string(), "DIR")
        .replace(&digest, "DIGEST");
    insta::assert_snapshot!(messages);
    let installed = install(&package, &digest);
    assert!(installed.status.success(), "{}", stderr(&installed));
    let own = env!("CARGO_PKG_VERSION");
    let warning = format!("the package is svclab 1.2.3 and this checkout is {own}");
    assert!(
        stderr(&installed).contains(&warning),
        "{}",
        stderr(&installed)
    );
    for name in ["svclab", "svclab-agent"] {
        let output = Command::new(prefix.join("bin").join(name)).output();
        let output = output.expect("the program starts");
        let expected = format!("{name} 1.2.3\n");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
}

#[test]
fn ci_script_as_user_uses_sudo_and_restores_ownership() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    let program = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a program");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
    };
    let log = root.join("log");
    let log = log.display();
    program("programs/id", "echo 1000");
    program(
        "programs/sudo",
        &format!(
            "echo \"$*\" >>{log}; case \"$1\" in chown|chmod) exit 0;; esac; while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\""
        ),
    );
    program("prefix/bin/svclab", "exit 5");
    fs::create_dir(root.join("cache")).expect("a directory");
    let path = format!(
        "{}:{}",
        root.join("programs").display(),
        std::env::var("PATH").expect("a path")
    );
    let output = Command::new(project().join("ci/svclab"))
        .args(["run", "some lab"])
        .env("PATH", path)
        .env("SVCLAB_PREFIX", root.join("prefix"))
        .env("SVCLAB_CACHE", root.join("cache"))
        .env_remove("SVCLAB_RESULTS")
        .output()
        .expect("a script");
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    let log_text = fs::read_to_string(root.join("log")).expect("the log of root's commands");
    let lines: Vec<&str> = log_text.lines().collect();
    // Root uses no cache that another user can change.
    assert_eq!(lines.len(), 4, "{log_text}");
    assert!(lines[0].starts_with("chown -R -- 0:0 "), "{log_text}");
    assert!(lines[1].starts_with("chmod -R -- go-w "), "{log_text}");
    let lines = &lines[2..];
    assert!(lines[0].ends_with("svclab run some lab"), "{log_text}");
    assert!(lines[0].contains("SVCLAB_CACHE"), "{log_text}");
    let cache = root.join("cache");
    let given_back = format!("chown -R -- 1000:1000 {}", cache.display());
    assert_eq!(lines[1], given_back);
}

#[test]
fn run_unwritable_result_file_exits_before_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, "").expect("a file");
    let below = format!("junit={}/junit.xml", file.display());
    let output = crate::support::run(&["run", "canal-stale-rule", "--write", &below]);
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
    let message = stderr(&output);
    assert!(message.starts_with("error: cannot write "), "{message}");
    assert!(message.contains("help: "), "{message}");
    let wrong = crate::support::run(&["run", "canal-stale-rule", "--write", "xml=x"]);
    assert_eq!(wrong.status.code(), Some(2));
    let message_of_wrong = stderr(&wrong);
    assert!(
        message_of_wrong.contains("unknown format `xml`"),
        "{message_of_wrong}"
    );
}
