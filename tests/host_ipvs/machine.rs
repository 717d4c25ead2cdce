//! A guest that stands for a host with IPVS and root: its first process, which
//! has it do everything, says on the console what came of it, and ends.

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

/// The name by which this program is `svclab`.
pub const SVCLAB: &str = "svclab";

/// The path of this program by which svclab starts its agent.
pub const AGENT: &str = "/proc/self/exe";

/// Where it is noted which modules the kernel wants: where the kernel's own programs and
/// these see the same file.
const ASKED: &str = "/etc/modules-asked-for";

/// Where this program lies there.
const INIT: &str = "/init";

/// The lab that is run there.
pub const LAB: &str = "clb-hairpin";

const TEXT: &str = include_str!("../../topologies/clb-hairpin.yaml");

/// Those of its cases.
const CASES: [&str; 2] = [
    "policy=Local,ingress=both,balancer=internal,rpFilter=0,byHand=nothing",
    "policy=Cluster,ingress=both,balancer=internal,rpFilter=1,byHand=nothing",
];

/// What came of it all, in one short line: of a console only the end is kept.
#[derive(Debug, Serialize, Deserialize)]
pub struct Said {
    /// Of `svclab run --kernel host`: its exit code, and of each case what came
    /// of it in which kernel, and what went wrong.
    pub run: (Option<i32>, Vec<(Outcome, String, String)>),
    /// How what that dropped is known, of each case.
    pub drops: Vec<String>,
    /// The same as a user without privileges: its exit code and its words.
    pub refused: (Option<i32>, String),
    /// What `svclab doctor` found of this host's IPVS.
    pub doctor: Option<Way>,
    /// What came of attempts to escape from an agent for IPVS.
    pub attempts: Option<Attempts>,
    /// What a run says before the modules that it needs are loaded: its exit code and its
    /// words.
    pub unloaded: (Option<i32>, String),
    /// The modules that the kernel wanted to have loaded for that run, and by the mount of
    /// a file system that there is not.
    pub asked: [String; 2],
    /// What programs of such an agent's labs reached.
    pub reached: Vec<String>,
    /// The setting that was attempted, before and after.
    pub setting: [String; 2],
}

/// The whole life of the guest.
pub fn live() -> ! {
    prepare();
    let lab = PathBuf::from("/tmp").join(LAB).with_extension("yaml");
    fs::write(&lab, TEXT).expect("a lab's file");
    let [one, two] = CASES.map(|case| format!("{}/{case}", lab.display()));
    // The kernel starts this program for every module that it lacks.
    fs::write("/proc/sys/kernel/modprobe", INIT).expect("a setting");
    let unloaded = svclab(&["run", &one, "--kernel", "host"], 0);
    let asked = || fs::read_to_string(ASKED).unwrap_or_default();
    let asked_by_run = asked();
    // Of this one there is no module.
    let none = None::<&str>;
    let kind = Some("svclab-none");
    let _ = mount(none, "/tmp", kind, MsFlags::empty(), none);
    let asked = [asked_by_run, asked()];
    load_modules();
    let setting = || fs::read_to_string(SETTING).expect("a setting");
    let before = setting();
    // One after the other: it is a slow machine with one processor.
    let json = ["--kernel", "host", "--jobs", "1", "--format", "json"];
    let report = ["--report", "/tmp/report"];
    let ran = svclab(&[&["run", &one, &two][..], &json, &report].concat(), 0);
    let refused = svclab(&["run", &one, "--kernel", "host"], 1000);
    let doctor = svclab(&["doctor", "--format", "json"], 0);
    // The kernel's latest, as the first numbers are taken inside, too.
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
        // For who reads the console.
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

/// What programs of labs reach whose agent keeps rights of the machine's own root: this
/// program is the agent and its labs' programs.
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

/// Whether they were seen, and of whom, or why they were not.
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

/// Makes of a kernel and an archive of files what svclab would find on a host.
fn prepare() {
    let none: Option<&str> = None;
    // A root that somebody mounted, as hosts have and archives have not:
    // pivot_root(2) takes no other.
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
    // A user without privileges makes a directory there, too.
    let everybody = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(Path::new("/tmp"), everybody).expect("permissions");
}

/// Notes that the kernel wants a module, and loads none.
pub fn modprobe(module: &str) -> ! {
    let asked = OpenOptions::new().create(true).append(true).open(ASKED);
    let noted = asked.and_then(|mut asked| writeln!(asked, "{module}"));
    std::process::exit(i32::from(noted.is_err()) + 1)
}

/// Loads all that the guest has.
fn load_modules() {
    let mut modules: Vec<PathBuf> = fs::read_dir("/modules")
        .expect("modules")
        .map(|entry| entry.expect("a module").path())
        .collect();
    modules.sort();
    for module in modules {
        // What depends on what is not there is not needed here.
        let opened = File::open(&module).expect("a module");
        let _ = finit_module(opened, c"", ModuleInitFlags::empty());
    }
}
