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
use serde_json::Value;
use svclab_model::evidence::Drops;
use svclab_report::doctor::Document;
use svclab_runner::kernel::Host;
use svclab_runner::kernel::doctor::Way;
use svclab_runner::results::{Outcome, Results};

use super::attempt::{Attempts, SETTING, WORD};
use super::tenants;

/// Program name under which this program acts as `svclab`.
pub const SVCLAB: &str = "svclab";

/// Path under which this program acts as the agent.
pub const AGENT: &str = "/proc/self/exe";

/// File with the modules that the kernel requested. The kernel's helper programs and this program
/// both see this path.
const ASKED: &str = "/etc/modules-asked-for";

/// Path of this program in the guest.
const INIT: &str = "/init";

/// Name of the lab that runs in the guest.
pub const LAB: &str = "clb-hairpin";

const TEXT: &str = include_str!("../../topologies/clb-hairpin.yaml");

/// Cases of the lab that run.
const CASES: [&str; 2] = [
    "policy=Local,ingress=both,balancer=internal,rpFilter=0,byHand=nothing",
    "policy=Cluster,ingress=both,balancer=internal,rpFilter=1,byHand=nothing",
];

/// All results, as one short line: only the end of the console output is kept.
#[derive(Debug, Serialize, Deserialize)]
pub struct Said {
    /// Result of `svclab run --kernel host`: exit code, and outcome, kernel and error of each case.
    pub run: (Option<i32>, Vec<(Outcome, String, String)>),
    /// For each case: `seen` if its drops were recorded, else the reason.
    pub drops: Vec<String>,
    /// Exit code and output of the run as a user without privileges.
    pub refused: (Option<i32>, String),
    /// Result of `svclab doctor` for IPVS on this host.
    pub doctor: Option<Way>,
    /// Results of the escape attempts from an agent for IPVS.
    pub attempts: Option<Attempts>,
    /// Exit code and output of a run before the required modules are loaded.
    pub unloaded: (Option<i32>, String),
    /// Modules that the kernel requested for that run, and for the mount of an unknown file system.
    pub asked: [String; 2],
    /// Escape attempts that succeeded in programs of such an agent's labs.
    pub reached: Vec<String>,
    /// The sysctl of the attempts, before and after.
    pub setting: [String; 2],
}

/// Runs the whole life of the guest.
pub fn live() -> ! {
    prepare();
    let lab = PathBuf::from("/tmp").join(LAB).with_extension("yaml");
    fs::write(&lab, TEXT).expect("a lab's file");
    let [one, two] = CASES.map(|case| format!("{}/{case}", lab.display()));
    // The kernel starts this program for every missing module.
    fs::write("/proc/sys/kernel/modprobe", INIT).expect("a setting");
    let unloaded = svclab(&["run", &one, "--kernel", "host"], 0);
    let asked = || fs::read_to_string(ASKED).unwrap_or_default();
    let asked_by_run = asked();
    // No module provides this file system.
    let none = None::<&str>;
    let kind = Some("svclab-none");
    let _ = mount(none, "/tmp", kind, MsFlags::empty(), none);
    let asked = [asked_by_run, asked()];
    load_modules();
    let setting = || fs::read_to_string(SETTING).expect("a setting");
    let before = setting();
    // One case at a time: the guest is slow and has one processor.
    let json = ["--kernel", "host", "--jobs", "1", "--format", "json"];
    let report = ["--report", "/tmp/report"];
    let ran = svclab(&[&["run", &one, &two][..], &json, &report].concat(), 0);
    let refused = svclab(&["run", &one, "--kernel", "host"], 1000);
    let doctor = svclab(&["doctor", "--format", "json"], 0);
    // The highest PID: low PIDs also exist in the agent's PID namespace.
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let outside: Option<u32> = processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .max();
    let outside = outside.expect("a process").to_string();
    let attempted = Command::new("/proc/self/exe")
        .args([WORD, "machine", &outside])
        .output()
        .expect("this program starts");
    for output in [&ran, &doctor, &attempted] {
        // For readers of the console.
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
    }
    let results: Option<Results> = serde_json::from_slice(&ran.stdout).ok();
    let doctor: Option<Document> = serde_json::from_slice(&doctor.stdout).ok();
    let findings = doctor.map(|document| document.diagnosis.findings);
    let said = Said {
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
        drops: CASES.iter().map(|case| how_drops_are_known(case)).collect(),
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
        reached: programs_reach(),
        unloaded: (
            unloaded.status.code(),
            String::from_utf8_lossy(&unloaded.stdout).into_owned(),
        ),
        asked,
        setting: [before, setting()],
    };
    println!("{}", serde_json::to_string(&said).expect("it is text"));
    let _ = reboot(RebootMode::RB_POWER_OFF);
    std::process::exit(0)
}

/// Returns the escape attempts that succeeded in programs of an agent with privileges of the
/// initial user namespace. This program is the agent and its labs' programs.
fn programs_reach() -> Vec<String> {
    tenants::take_keys();
    let own = PathBuf::from(INIT);
    let host = Host::with_agent(own.clone()).with_programs([own.clone()]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let reached = runtime.block_on(async {
        let agent = host.for_ipvs().start().await?;
        tenants::reached(&agent, &own, tenants::are_apart_on_the_machine).await
    });
    reached.unwrap_or_else(|error| vec![error.to_string()])
}

/// Returns `seen` if drops of packets were recorded, else the reason.
fn how_drops_are_known(case: &str) -> String {
    let evidence = format!("/tmp/report/{LAB}/{case}/evidence.json");
    let Ok(text) = fs::read(&evidence) else {
        return format!("there is no {evidence}");
    };
    let document: Option<Value> = serde_json::from_slice(&text).ok();
    let drops = document.map(|document| document["evidence"]["drops"].clone());
    match drops.map(serde_json::from_value) {
        Some(Ok(Drops::Watched { lost: 0, dropped })) if !dropped.is_empty() => "seen".to_owned(),
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
fn prepare() {
    let none: Option<&str> = None;
    // The root must be a mount, as on hosts: `pivot_root(2)` accepts no initramfs root.
    fs::create_dir_all("/root-of-host").expect("a directory");
    let must = |what: &str, done: nix::Result<()>| {
        if let Err(errno) = done {
            println!("cannot {what}: {errno}");
            let _ = reboot(RebootMode::RB_POWER_OFF);
        }
    };
    let root = "/root-of-host";
    let (bind, to) = (MsFlags::MS_BIND, MsFlags::MS_MOVE);
    must("bind the root", mount(Some("/"), root, none, bind, none));
    must("go there", chdir(root));
    must("move it", mount(Some("."), "/", none, to, none));
    must("make it the root", chroot("."));
    for (kind, at) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/run"),
        ("tmpfs", "/tmp"),
    ] {
        must(
            at,
            mount(Some(kind), at, Some(kind), MsFlags::empty(), none),
        );
    }
    // A user without privileges also creates a directory there.
    let everybody = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(Path::new("/tmp"), everybody).expect("permissions");
}

/// Records that the kernel requested a module, and loads none.
pub fn modprobe(module: &str) -> ! {
    let asked = OpenOptions::new().create(true).append(true).open(ASKED);
    let noted = asked.and_then(|mut asked| writeln!(asked, "{module}"));
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
