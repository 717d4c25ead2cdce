//! A guest that simulates a host with IPVS and root. This program is its first process: it runs all
//! commands, prints the results on the console, and powers the guest off.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::unistd::{chdir, chroot};
use serde::{Deserialize, Serialize};
use svclab_model::evidence::DropEvidence;
use svclab_report::doctor::DoctorDocument;
use svclab_runner::kernel::Host;
use svclab_runner::kernel::doctor::Availability;
use svclab_runner::results::CaseStatus;
use svclab_test_support::block_on;
use svclab_test_support::evidence::read_case;

use super::attempt::{Attempts, RUN_ATTEMPTS, SYSCTL};
use crate::tenants;

/// Program name under which this program acts as `svclab`.
pub const SVCLAB: &str = "svclab";

/// Path under which this program acts as the agent.
pub const AGENT: &str = "/proc/self/exe";

/// File with the modules that the kernel requested. The kernel's helper programs and this program
/// both see this path.
const REQUESTED_MODULES: &str = "/etc/modules-asked-for";

/// Path of this program in the guest.
const INIT: &str = "/init";

/// Name of the lab that runs in the guest.
pub const LAB: &str = "clb-hairpin";

const LAB_TEXT: &str = include_str!("../../../topologies/clb-hairpin.yaml");

/// Cases of the lab that run.
const CASES: [&str; 2] = [
    "policy=Local,ingress=both,balancer=internal,rpFilter=0,byHand=nothing",
    "policy=Cluster,ingress=both,balancer=internal,rpFilter=1,byHand=nothing",
];

/// All results, as one short line: only the end of the console output is kept.
#[derive(Debug, Serialize, Deserialize)]
pub struct GuestReport {
    /// Result of `svclab run --kernel host`: exit code, and outcome, kernel and error of each case.
    pub run: (Option<i32>, Vec<(CaseStatus, String, String)>),
    /// For each case: `seen` if its drops were recorded, else the reason.
    pub drops: Vec<String>,
    /// Exit code and output of the run as a user without privileges.
    pub refused: (Option<i32>, String),
    /// Result of `svclab doctor` for IPVS on this host.
    pub doctor: Option<Availability>,
    /// Results of the escape attempts from an agent for IPVS.
    pub attempts: Option<Attempts>,
    /// Exit code and output of a run before the required modules are loaded.
    pub unloaded: (Option<i32>, String),
    /// Modules that the kernel requested for that run, and for the mount of an unknown file system.
    pub requested_modules: [String; 2],
    /// Escape attempts that succeeded in programs of such an agent's labs.
    pub escapes: Vec<String>,
    /// The sysctl of the attempts, before and after.
    pub sysctl: [String; 2],
}

/// Runs the whole life of the guest.
pub fn run_as_init() -> ! {
    set_up_host();
    let lab = PathBuf::from("/tmp").join(LAB).with_extension("yaml");
    fs::write(&lab, LAB_TEXT).expect("a lab's file");
    let [first, second] = CASES.map(|case| format!("{}/{case}", lab.display()));
    // The kernel starts this program for every missing module.
    fs::write("/proc/sys/kernel/modprobe", INIT).expect("a setting");
    let unloaded = svclab(&["run", &first, "--kernel", "host"], 0);
    let requested = || fs::read_to_string(REQUESTED_MODULES).unwrap_or_default();
    let asked_by_run = requested();
    // No module provides this file system.
    let none = None::<&str>;
    let kind = Some("svclab-none");
    let _ = mount(none, "/tmp", kind, MsFlags::empty(), none);
    let asked = [asked_by_run, requested()];
    load_modules();
    let read_sysctl = || fs::read_to_string(SYSCTL).expect("a setting");
    let before = read_sysctl();
    // One case at a time: the guest is slow and has one processor.
    let json = ["--kernel", "host", "--jobs", "1", "--format", "json"];
    let report = ["--report", "/tmp/report"];
    let ran = svclab(&[&["run", &first, &second][..], &json, &report].concat(), 0);
    let refused = svclab(&["run", &first, "--kernel", "host"], 1000);
    let doctor = svclab(&["doctor", "--format", "json"], 0);
    // The highest PID: low PIDs also exist in the agent's PID namespace.
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let outside: Option<u32> = processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .max();
    let outside = outside.expect("a process").to_string();
    let attempted = Command::new("/proc/self/exe")
        .args([RUN_ATTEMPTS, "machine", &outside])
        .output()
        .expect("this program starts");
    for output in [&ran, &doctor, &attempted] {
        // For readers of the console.
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
    }
    let results: Option<svclab_report::results::Document> =
        serde_json::from_slice(&ran.stdout).ok();
    let doctor: Option<DoctorDocument> = serde_json::from_slice(&doctor.stdout).ok();
    let findings = doctor.map(|document| document.diagnosis.findings);
    let guest_report = GuestReport {
        run: (
            ran.status.code(),
            results
                .into_iter()
                .flat_map(|results| results.cases)
                .map(|case| {
                    let failed = case.probes.iter().filter(|probe| !probe.holds);
                    let failed: Vec<String> = failed.map(|probe| format!("{probe:?}")).collect();
                    let failed = failed.concat();
                    let error = case.error.map(|error| error.message);
                    (case.result, case.kernel, error.unwrap_or(failed))
                })
                .collect(),
        ),
        drops: CASES.iter().map(|case| drop_status(case)).collect(),
        refused: (
            refused.status.code(),
            String::from_utf8_lossy(&refused.stdout).into_owned(),
        ),
        doctor: findings
            .into_iter()
            .flatten()
            .find(|found| found.feature == "IPVS")
            .map(|found| found.host),
        attempts: serde_json::from_slice(&attempted.stdout).ok(),
        escapes: find_escapes(),
        unloaded: (
            unloaded.status.code(),
            String::from_utf8_lossy(&unloaded.stdout).into_owned(),
        ),
        requested_modules: asked,
        sysctl: [before, read_sysctl()],
    };
    println!(
        "{}",
        serde_json::to_string(&guest_report).expect("the value can be serialized")
    );
    let _ = reboot(RebootMode::RB_POWER_OFF);
    std::process::exit(0)
}

/// Returns the escape attempts that succeeded in programs of an agent with privileges of the
/// initial user namespace. This program is the agent and its labs' programs.
fn find_escapes() -> Vec<String> {
    tenants::join_keyring_with_key();
    let program = PathBuf::from(INIT);
    let host = Host::with_agent(PathBuf::from(AGENT)).with_programs([program.clone()]);
    let reached = block_on(async {
        let agent = host.with_ipvs_privileges().start().await?;
        tenants::find_escapes(&agent, &program, tenants::are_isolated_on_host).await
    });
    reached.unwrap_or_else(|error| vec![error.to_string()])
}

/// Returns `seen` if drops of packets were recorded, else the reason.
fn drop_status(case: &str) -> String {
    let directory = format!("/tmp/report/{LAB}/{case}");
    let document = match read_case(Path::new(&directory)) {
        Ok(document) => document,
        Err(error) => return format!("{directory}: {error}"),
    };
    match serde_json::from_value(document["evidence"]["stages"][0]["drops"].clone()) {
        Ok(DropEvidence::Watched { missed: 0, dropped }) if !dropped.is_empty() => {
            "seen".to_owned()
        }
        other => format!("{other:?}"),
    }
}

fn svclab(words: &[&str], user: u32) -> Output {
    Command::new("/proc/self/exe")
        .arg0(SVCLAB)
        .args(words)
        .uid(user)
        .gid(user)
        .env_clear()
        .env("SVCLAB_AGENT", AGENT)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("SVCLAB_CACHE", "/tmp/cache")
        .output()
        .expect("svclab starts")
}

/// Sets up a kernel with an initramfs like a host.
fn set_up_host() {
    let none: Option<&str> = None;
    // The root must be a mount, as on hosts: `pivot_root(2)` accepts no initramfs root.
    fs::create_dir_all("/root-of-host").expect("a directory");
    let must = |action: &str, done: nix::Result<()>| {
        if let Err(errno) = done {
            println!("cannot {action}: {errno}");
            let _ = reboot(RebootMode::RB_POWER_OFF);
        }
    };
    let root = "/root-of-host";
    let (bind, to) = (MsFlags::MS_BIND, MsFlags::MS_MOVE);
    must(
        "bind the root directory",
        mount(Some("/"), root, none, bind, none),
    );
    must("change to the new root", chdir(root));
    must("move the mount", mount(Some("."), "/", none, to, none));
    must("change the root", chroot("."));
    for (kind, target) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/run"),
        ("tmpfs", "/tmp"),
    ] {
        must(
            target,
            mount(Some(kind), target, Some(kind), MsFlags::empty(), none),
        );
    }
    // A user without privileges also creates a directory there.
    let everybody = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(Path::new("/tmp"), everybody).expect("permissions");
}

/// Records that the kernel requested a module, and loads none.
pub fn modprobe(module: &str) -> ! {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(REQUESTED_MODULES);
    let noted = file.and_then(|mut asked| writeln!(asked, "{module}"));
    std::process::exit(i32::from(noted.is_err()) + 1)
}

/// Loads all modules of the guest.
fn load_modules() {
    let mut modules: Vec<PathBuf> = fs::read_dir("/modules")
        .expect("modules")
        .map(|entry| entry.expect("a module").path())
        .collect();
    modules.sort();
    for module in modules {
        // Modules with missing dependencies are not needed here.
        let opened = File::open(&module).expect("a module");
        let _ = finit_module(opened, c"", ModuleInitFlags::empty());
    }
}
