//! Network namespaces in which scripts are loaded and read back.

use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use libtest_mimic::{Failed, Trial};
use netlink_sys::{Socket, SocketAddr};
use nix::sched::{CloneFlags, unshare};
use svclab_rules::kube_proxy::{Family, Rules};

/// The two iptables backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IptablesBackend {
    Nft,
    Legacy,
}

impl fmt::Display for IptablesBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nft => "nft",
            Self::Legacy => "legacy",
        })
    }
}

/// Argument with which this program only runs these trials.
pub const AS_ROOT: &str = "--recorded-as-root";

/// Creates a trial that runs as root, which network namespaces need. Every user can be root in a
/// user namespace: another process of this program then runs the trial.
pub fn root_trial(
    name: String,
    run: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    Trial::test(name.clone(), move || {
        if nix::unistd::geteuid().is_root() {
            run()
        } else {
            run_as_root(&name)
        }
    })
}

fn run_as_root(name: &str) -> Result<(), Failed> {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user"])
        .arg(std::env::current_exe()?)
        .args([AS_ROOT, "--exact", name])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && text.contains(" 1 passed;") {
        return Ok(());
    }
    Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr)).into())
}

/// Loads the rules in a new network namespace. Returns the output of `iptables-save`.
pub fn load(written: &Rules, family: Family, flavour: IptablesBackend) -> Result<String, Failed> {
    let text = written.script.to_string();
    let accounting = written.accounting.clone();
    in_thread(move || load_in_new_namespace(&text, &accounting, family, flavour))
}

/// Loads a text in a new network namespace. Returns the output of `iptables-save`.
pub fn load_text(text: &str, family: Family, flavour: IptablesBackend) -> Result<String, Failed> {
    let text = text.to_owned();
    in_thread(move || load_in_new_namespace(&text, &[], family, flavour))
}

/// Loads sets and then rules in a new network namespace. Returns the output of `iptables-save` and
/// `ipset save`.
pub fn load_sets(
    script: &str,
    sets: &str,
    family: Family,
    flavour: IptablesBackend,
) -> Result<(String, String), Failed> {
    let (script, sets) = (script.to_owned(), sets.to_owned());
    in_thread(move || {
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|e| format!("cannot create a network namespace: {e}"))?;
        let nowhere = Path::new("/dev/null");
        run("ipset", &["restore"], &sets, nowhere)?;
        let rules = restore_and_save(&script, family, flavour)?;
        let sets = run("ipset", &["save"], "", nowhere)?;
        Ok((rules, sets))
    })
}

/// Loads a ruleset with `nft -f` in a new network namespace. Returns the output of `nft list
/// ruleset`.
pub fn load_nft(ruleset: &str) -> Result<String, Failed> {
    let ruleset = ruleset.to_owned();
    in_thread(move || {
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|e| format!("cannot create a network namespace: {e}"))?;
        let nowhere = Path::new("/dev/null");
        run("nft", &["-f", "-"], &ruleset, nowhere)?;
        run("nft", &["list", "ruleset"], "", nowhere)
    })
}

/// Runs work in a new thread, which can have its own network namespace. Processes that it starts
/// inherit the namespace. The kernel deletes the namespace once the thread and the processes have
/// ended.
fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, Failed> {
    let thread = std::thread::spawn(work);
    match thread.join() {
        Ok(result) => result.map_err(Failed::from),
        Err(_) => Err("the namespace's thread panicked".into()),
    }
}

fn load_in_new_namespace(
    text: &str,
    accounting: &[&str],
    family: Family,
    flavour: IptablesBackend,
) -> Result<String, String> {
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|e| format!("cannot create a network namespace: {e}"))?;
    for name in accounting {
        create_nfacct_object(name)
            .map_err(|e| format!("cannot create nfacct object {name}: {e}"))?;
    }
    restore_and_save(text, family, flavour)
}

/// Restores `text` in this thread's namespace and returns the output of `iptables-save`.
fn restore_and_save(
    text: &str,
    family: Family,
    flavour: IptablesBackend,
) -> Result<String, String> {
    // With a common lock file, all namespaces would wait for each other.
    let folder =
        tempfile::tempdir().map_err(|e| format!("cannot create a temporary directory: {e}"))?;
    let lock = folder.path().join("xtables.lock");
    let infix = match family {
        Family::V4 => "",
        Family::V6 => "6",
    };
    let tool = |verb: &str| format!("ip{infix}tables-{flavour}-{verb}");
    run(&tool("restore"), &["--noflush"], text, &lock)?;
    let saved = run(&tool("save"), &[], "", &lock)?;
    Ok(saved)
}

fn run(program: &str, arguments: &[&str], input: &str, lock: &Path) -> Result<String, String> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("XTABLES_LOCKFILE", lock)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("{program}: {e}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        let written = stdin.write_all(input.as_bytes());
        written.map_err(|e| format!("{program}: {e}"))?;
    }
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let numbered: Vec<String> = input
            .lines()
            .enumerate()
            .map(|(i, line)| format!("{:4} {line}", i + 1))
            .collect();
        Err(format!("{program}: {stderr}\n{}", numbered.join("\n")))
    }
}

/// Creates an nfacct object, as kube-proxy does before its rules use the object:
/// `NFNL_MSG_ACCT_NEW` of `linux/netfilter/nfnetlink_acct.h`.
fn create_nfacct_object(name: &str) -> std::io::Result<()> {
    const NETLINK_NETFILTER: isize = 12;
    const NFNL_SUBSYS_ACCT: u8 = 7;
    const NFNL_MSG_ACCT_NEW: u8 = 0;
    const NFACCT_NAME: u16 = 1;
    const REQUEST_ACK_CREATE: u16 = 0x1 | 0x4 | 0x400;

    let mut value = name.as_bytes().to_vec();
    value.push(0);
    let mut attribute = Vec::new();
    let length = u16::try_from(4 + value.len()).map_err(std::io::Error::other)?;
    attribute.extend(length.to_ne_bytes());
    attribute.extend(NFACCT_NAME.to_ne_bytes());
    attribute.extend(&value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);

    let mut message = Vec::new();
    let length = u32::try_from(20 + attribute.len()).map_err(std::io::Error::other)?;
    message.extend(length.to_ne_bytes());
    message.extend([NFNL_MSG_ACCT_NEW, NFNL_SUBSYS_ACCT]);
    message.extend(REQUEST_ACK_CREATE.to_ne_bytes());
    message.extend([0; 8]); // sequence number, port
    message.extend([0; 4]); // nfgenmsg
    message.extend(&attribute);

    let socket = Socket::new(NETLINK_NETFILTER)?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&message, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let code = answer.get(16..20).and_then(|b| b.try_into().ok());
    match code.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(code) => Err(std::io::Error::from_raw_os_error(-code)),
        None => Err(std::io::Error::other("no reply")),
    }
}
