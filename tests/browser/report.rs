//! Reports of runs, in both layouts: a file with all cases, and a directory. Navigates between the
//! table of a run and its cases.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use data_encoding::BASE64;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::webdriver::Browser;
use svclab_test_support::ordinary_or_full;

/// Cases of the incident labs. Those with IPVS end with an error if this kernel has no IPVS.
const CASES: [&str; 6] = [
    "canal-stale-rule/stale=present,rpFilter=0,underlay=drops",
    "canal-stale-rule/stale=removed,rpFilter=0,underlay=passes",
    "clb-hairpin/policy=Local,ingress=both,balancer=internal,rpFilter=0,byHand=nothing",
    "local-ingress/policy=Local,clusterCIDR=none,version=v1.20,mode=iptables",
    "missing-cluster-cidr/clusterCIDR=missing,byHand=nothing,apiserver=apart",
    // The only case with steps.
    "service-changes/version=v1.36,mode=iptables",
];

/// Number of cases without IPVS, which every kernel can run.
const CASES_OF_EVERY_KERNEL: usize = 4;

/// Visible cases. Each is a section of the page of the run, or has a page of its own.
pub const OPEN_CASES: &str =
    "[...document.querySelectorAll('.case')].filter((section) => section.checkVisibility())";

/// Where `svclab run --report` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Page with everything.
    File,
    /// A directory with `index.html` and the files of each case.
    Directory,
}

impl Layout {
    pub const ALL: [Self; 2] = [Self::File, Self::Directory];
}

impl std::fmt::Display for Layout {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::File => "file",
            Self::Directory => "directory",
        })
    }
}

/// Report on disk.
#[derive(Debug)]
pub struct Report {
    /// Page with the table of cases.
    pub page: PathBuf,
    /// Number of cases that have to run on this kernel.
    minimum: usize,
    _directory: TempDir,
}

impl Report {
    /// Runs the cases of the incident labs.
    pub fn of_incidents(layout: Layout) -> Self {
        Self {
            minimum: ordinary_or_full(CASES_OF_EVERY_KERNEL, CASES.len()),
            ..Self::new(layout, &CASES.map(str::to_owned))
        }
    }

    /// Runs labs and writes their report. The labs run on the kernel of this host; in a full test run,
    /// those that it cannot run are run in a guest.
    pub fn new(layout: Layout, labs: &[String]) -> Self {
        let kernel = ordinary_or_full("--kernel=host", "--kernel=auto");
        Self::on_kernel(kernel, layout, labs)
    }

    /// Runs labs on a kernel (`--kernel=6.12`) and writes their report.
    pub fn on_kernel(kernel: &str, layout: Layout, labs: &[String]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (report, page) = match layout {
            Layout::File => ("report.html", "report.html"),
            Layout::Directory => ("report", "report/index.html"),
        };
        let output = Command::new(crate::SVCLAB)
            .current_dir(svclab_test_support::root())
            .env_remove("SVCLAB_TOPOLOGIES")
            .args(["run", kernel, "--report"])
            .arg(directory.path().join(report))
            .args(labs)
            .output()
            .expect("the command starts");
        let page = directory.path().join(page);
        // Without IPVS, some cases have errors.
        assert!(
            page.exists(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Self {
            page,
            minimum: 1,
            _directory: directory,
        }
    }

    /// Returns the address of the page with the table of cases.
    pub fn address(&self) -> String {
        format!("file://{}", self.page.display())
    }

    /// Opens the table of cases.
    #[track_caller]
    pub fn open_table(&self, browser: &Browser) {
        browser.open(&self.address());
        wait_for_table(browser);
    }

    /// Opens the table, and returns the cases that ran.
    #[track_caller]
    pub fn cases_that_ran(&self, browser: &Browser) -> Vec<Case> {
        self.open_table(browser);
        let mut cases = cases(browser);
        cases.retain(Case::ran);
        assert!(cases.len() >= self.minimum, "{cases:?}");
        cases
    }
}

/// Row of the table of cases.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    /// Address of the case.
    pub address: String,
    /// Result in the table, such as `PASS`.
    pub result: String,
}

impl Case {
    /// Whether the case has evidence.
    pub fn ran(&self) -> bool {
        self.result != "ERROR"
    }

    pub fn lab(&self) -> &str {
        self.name.split('/').next().expect("a name")
    }

    /// Whether the case is a section of the page with the table.
    pub fn has_section(&self) -> bool {
        self.address.contains('#')
    }

    /// Clicks the case in the open table.
    #[track_caller]
    pub fn click(&self, browser: &Browser) {
        let link = browser.run(
            "return [...document.querySelectorAll('#cases a')]
               .find((link) => link.textContent === arguments[0]);",
            &[json!(self.name)],
        );
        browser.click(&link);
        self.wait(browser);
    }

    /// Opens the case by its address, from another page.
    #[track_caller]
    pub fn open(&self, browser: &Browser) {
        // With another page before, the browser loads the page again.
        browser.open("about:blank");
        browser.open(&self.address);
        self.wait(browser);
    }

    /// Waits until only this case is visible.
    #[track_caller]
    pub fn wait(&self, browser: &Browser) {
        browser.wait_until(
            &format!(
                "(() => {{
                   const open = {OPEN_CASES};
                   const table = document.getElementById('cases');
                   return open.length === 1 && open[0].ariaLabel === arguments[0]
                     && open[0].querySelector('h1') && !(table && table.checkVisibility());
                 }})()"
            ),
            &[json!(self.name)],
        );
    }
}

/// Waits until the table is visible, and no case.
#[track_caller]
pub fn wait_for_table(browser: &Browser) {
    browser.wait_until(
        &format!(
            "document.getElementById('cases')?.checkVisibility() && {OPEN_CASES}.length === 0"
        ),
        &[],
    );
}

/// Returns the cases in the order of the table, which must be open.
#[track_caller]
pub fn cases(browser: &Browser) -> Vec<Case> {
    let rows = browser.run(
        "return [...document.querySelectorAll('#cases tbody tr')].map((row) => {
           const link = row.querySelector('a');
           return [link.textContent, link.href, row.querySelector('.pill').textContent];
         });",
        &[],
    );
    let rows = rows.as_array().expect("rows").iter();
    rows.map(|row| Case {
        name: text(&row[0]),
        address: text(&row[1]),
        result: text(&row[2]),
    })
    .collect()
}

/// Reads a file of the open case, such as `capture.pcapng`.
#[track_caller]
pub fn read_file(browser: &Browser, name: &str) -> Vec<u8> {
    let address = browser.run(
        &format!(
            "const section = {OPEN_CASES}[0];
             const links = [...section.querySelectorAll('a[download]')];
             return links.find((link) => link.download.startsWith(arguments[0])).href;"
        ),
        &[json!(name)],
    );
    let address = address.as_str().expect("an address");
    if let Some(path) = address.strip_prefix("file://") {
        let file = fs::read(decoded(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let is_compressed = file.starts_with(&GZIP_MAGIC);
        return if is_compressed {
            decompressed(&file)
        } else {
            file
        };
    }
    let (_, encoded) = address.split_once(";base64,").expect("a data URL");
    decompressed(&BASE64.decode(encoded.as_bytes()).expect("base64"))
}

/// First bytes of a gzip file (RFC 1952, section 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

fn decompressed(compressed: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut decoder = GzDecoder::new(compressed);
    decoder.read_to_end(&mut file).expect("a gzip file");
    file
}

/// Replaces the escapes of a path in a URL.
fn decoded(path: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| after.get(..2)).flatten();
        let digits = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    Path::new(&String::from_utf8(bytes).expect("a path")).to_owned()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
