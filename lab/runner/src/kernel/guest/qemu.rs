//! The program that runs a guest: which one it is, what it can do, and how it
//! is asked for one of our machines.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use nix::sys::wait::WaitStatus;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;

use super::confine::{self, Access, Lacks};
use super::error::GuestError;
use svclab_agent::PORT;

/// The program, for this processor's kind.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// The oldest that these machines were tried with: Debian 12's.
pub const OLDEST: (u32, u32) = (7, 2);

/// A guest's memory in MiB, unless it is asked for more. 96 do for the kernel
/// and the agent; the rest is room for labs.
pub const MEMORY: u32 = 256;

/// How much translated code QEMU keeps of a guest, in MiB; unless told, it keeps
/// up to a GiB. With 31 cases in two guests at once a guest came to 500 MiB of
/// memory so, to 250 with 128 and as fast, to 170 with 64 and a fifth slower.
const TRANSLATED: u32 = 128;

/// The processor of a guest whose code is translated. Without these two features a kernel
/// clears and copies memory by eight bytes in place of one (Linux v6.12,
/// `arch/x86/include/asm/page_64.h`, `clear_page`), and QEMU translates each as one step: a
/// boot takes a tenth less.
const TRANSLATED_PROCESSOR: &str = "max,-erms,-fsrm";

/// How a guest's instructions are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// By the processor itself.
    Kvm,
    /// By translation.
    Tcg,
}

impl Accel {
    /// QEMU's word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// A QEMU as it is installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qemu {
    /// The program.
    pub path: PathBuf,
    /// Its version, with the distribution's part.
    pub version: String,
    /// Whether it can lock itself in by seccomp.
    pub sandbox: bool,
}

/// The first QEMU in a list of directories such as `PATH`.
///
/// # Errors
///
/// When there is none.
pub fn find(path: Option<&OsStr>) -> Result<PathBuf, GuestError> {
    path.into_iter()
        .flat_map(std::env::split_paths)
        .map(|directory| directory.join(PROGRAM))
        .find(|program| program.is_file())
        .ok_or(GuestError::NoQemu)
}

/// Asks a QEMU what it is, confined as one that runs a guest; returns as well what
/// this machine refused of the confinement.
///
/// # Errors
///
/// When it does not start, is older than [`OLDEST`], or says something else
/// than a version.
pub async fn inspect(path: &Path) -> Result<(Qemu, Lacks), GuestError> {
    // Options take effect in their order: a QEMU without seccomp refuses the
    // first and never comes to the second (QEMU v7.2.0, `softmmu/vl.c`).
    let locked = ask(path, &["-sandbox", "on", "-version"]).await?;
    let sandbox = locked.succeeded;
    let said = if sandbox {
        locked
    } else {
        ask(path, &["-version"]).await?
    };
    let version = version(&said.text).ok_or_else(|| GuestError::OddQemu {
        program: path.to_owned(),
        said: said.text.trim().to_owned(),
    })?;
    if numbers(version) < OLDEST {
        return Err(GuestError::OldQemu {
            program: path.to_owned(),
            version: version.to_owned(),
        });
    }
    let qemu = Qemu {
        path: path.to_owned(),
        version: version.to_owned(),
        sandbox,
    };
    Ok((qemu, said.lacks))
}

/// How a QEMU that was only asked something ended.
struct Answer {
    succeeded: bool,
    /// What it printed.
    text: String,
    lacks: Lacks,
}

/// Asks a QEMU something.
async fn ask(path: &Path, arguments: &[&str]) -> Result<Answer, GuestError> {
    let unstarted = |source| GuestError::Start {
        program: path.to_owned(),
        source,
    };
    let program = std::fs::canonicalize(path).map_err(unstarted)?;
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    let mut confined = confine::spawn(&program, &arguments, &Access::default())?;
    let (mut text, mut errors) = (Vec::new(), Vec::new());
    let (read, read_errors, status) = tokio::join!(
        confined.stdout.read_to_end(&mut text),
        confined.stderr.read_to_end(&mut errors),
        confined.process.wait(),
    );
    read.and(read_errors).map_err(unstarted)?;
    text.extend(errors);
    Ok(Answer {
        succeeded: matches!(status, Some(WaitStatus::Exited(_, 0))),
        text: String::from_utf8_lossy(&text).into_owned(),
        lacks: confined.lacks,
    })
}

/// What follows `QEMU emulator version` in the first line.
fn version(text: &str) -> Option<&str> {
    let version = text.lines().next()?.split("version ").nth(1)?.trim();
    version
        .starts_with(|first: char| first.is_ascii_digit())
        .then_some(version)
}

fn numbers(version: &str) -> (u32, u32) {
    let mut parts = version.split(|letter: char| !letter.is_ascii_digit());
    let mut next = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
    (next(), next())
}

/// Where a machine's memory lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Memory {
    /// In this file, so that it outlives the machine.
    Kept(PathBuf),
    /// As this file has it; what the machine writes is its own.
    CopyOf(PathBuf),
}

/// How a machine begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beginning {
    /// It boots.
    Boot {
        /// The kernel's file.
        kernel: PathBuf,
        /// The archive of its first file system.
        initramfs: PathBuf,
    },
    /// It waits for the state of another, to go on from there.
    GoOn,
}

/// One of our machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// How instructions are executed.
    pub accel: Accel,
    /// Where its memory lies.
    pub memory: Memory,
    /// How much of it there is, in MiB.
    pub size: u32,
    /// How it begins.
    pub begins: Beginning,
    /// The descriptor of a connected socket to the agent.
    pub agent: RawFd,
    /// The descriptor of a connected socket for QEMU's own control.
    pub control: RawFd,
}

/// The kernel's command line. `panic=-1` makes it restart at once, which `-no-reboot` makes
/// the end of QEMU. `rootfstype=ramfs` takes away the limit of the first file system: tmpfs
/// has room for half of the memory, and the kernel goes on with a file cut off where an
/// archive needs more (Linux v6.12, `init/do_mounts.c`, `init_rootfs`; `init/initramfs.c`,
/// `do_populate_rootfs`).
#[must_use]
pub fn command_line() -> String {
    format!(
        "console=ttyS0 quiet panic=-1 no_timer_check random.trust_cpu=on audit=0 rootfstype=ramfs rdinit={} -- {}",
        super::userland::INIT,
        svclab_agent::INIT,
    )
}

/// What a QEMU is started with for a machine. It has no network card, no disk,
/// no display, and no way to this machine's files; its console is QEMU's
/// standard output.
#[must_use]
pub fn arguments(qemu: &Qemu, machine: &Machine) -> Vec<OsString> {
    let size = machine.size;
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
    add(&["-name", "svclab", "-nodefaults", "-no-user-config"]);
    add(&["-display", "none", "-no-reboot"]);
    if qemu.sandbox {
        add(&[
            "-sandbox",
            "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        ]);
    }
    // The kind `microvm` boots faster, and hung in two of six boots by TCG.
    let kind = "q35,memory-backend=memory,graphics=off,sata=off,smbus=off,usb=off,vmport=off";
    let accel = match machine.accel {
        Accel::Kvm => machine.accel.word().to_owned(),
        Accel::Tcg => format!("{},tb-size={TRANSLATED}", machine.accel.word()),
    };
    add(&["-machine", kind, "-accel", &accel]);
    let processor = match machine.accel {
        Accel::Kvm => "max",
        Accel::Tcg => TRANSLATED_PROCESSOR,
    };
    add(&["-cpu", processor, "-smp", "1", "-m", &format!("{size}M")]);
    let (file, shared) = match &machine.memory {
        Memory::Kept(file) => (file, "on"),
        Memory::CopyOf(file) => (file, "off"),
    };
    // In QEMU's lists of options a comma is written twice.
    let file = file.to_string_lossy().replace(',', ",,");
    add(&[
        "-object",
        &format!(
            "memory-backend-file,id=memory,size={size}M,mem-path={file},share={shared},merge=off,dump=off"
        ),
    ]);
    add(&["-chardev", "stdio,id=console,signal=off,mux=off"]);
    add(&["-serial", "chardev:console"]);
    add(&["-chardev", &format!("socket,id=agent,fd={}", machine.agent)]);
    add(&["-device", "virtio-serial-pci,max_ports=2"]);
    add(&[
        "-device",
        &format!("virtserialport,chardev=agent,name={PORT}"),
    ]);
    add(&[
        "-chardev",
        &format!("socket,id=control,fd={}", machine.control),
    ]);
    add(&["-mon", "chardev=control,mode=control"]);
    match &machine.begins {
        Beginning::Boot { kernel, initramfs } => {
            add(&["-append", &command_line()]);
            arguments.extend(["-kernel".into(), kernel.into()]);
            arguments.extend(["-initrd".into(), initramfs.into()]);
        }
        // What is to be ignored of the state must be told before it is read.
        Beginning::GoOn => add(&["-incoming", "defer"]),
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_qemu_says_them() {
        let said = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright\n";
        let version = version(said).unwrap();
        assert_eq!(version, "7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)");
        assert_eq!(numbers(version), (7, 2));
        assert_eq!(numbers("10.0.2"), (10, 0));
        assert!(numbers("6.2.0") < OLDEST);
        assert_eq!(super::version("qemu: unknown option\n"), None);
        assert_eq!(super::version("a version of nothing"), None);
    }

    #[test]
    fn a_machine_has_no_way_out_but_its_port_and_console() {
        let qemu = Qemu {
            path: "qemu".into(),
            version: "7.2".to_owned(),
            sandbox: true,
        };
        let machine = Machine {
            accel: Accel::Tcg,
            memory: Memory::CopyOf("/tmp/a,b/memory".into()),
            size: MEMORY,
            begins: Beginning::GoOn,
            agent: 5,
            control: 6,
        };
        let words: Vec<String> = arguments(&qemu, &machine)
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect();
        insta::assert_snapshot!(words.join("\n"));
        for way in ["-netdev", "-drive", "-nic", "-virtfs", "-kernel"] {
            assert!(!words.iter().any(|word| word == way), "{way}");
        }
    }
}
