//! QEMU: finds the program, reads its version and features, and builds its arguments for a machine.

pub(super) mod confine;
mod console;
pub(super) mod machine;
mod process;
mod qmp;

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use nix::sys::wait::WaitStatus;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;

use crate::kernel::error::guest::{GuestError, MIN_VERSION, QEMU_PROGRAM};
use confine::{Access, DisallowedLayers};
use svclab_agent::PORT_NAME;

/// Size of QEMU's buffer of translated code, in MiB; QEMU's default is up to 1 GiB. Measured with
/// 31 cases in 2 guests at once: with the default a guest used 500 MiB of memory. With 128 it used
/// 250 MiB at the same speed, and with 64 it used 170 MiB but was 20 % slower.
const TRANSLATION_BUFFER_MIB: u32 = 128;

/// Processor of a guest whose code is translated. Without these two features, a kernel clears and
/// copies memory by 8 bytes instead of 1 byte (Linux v6.12, `arch/x86/include/asm/page_64.h`,
/// `clear_page`). QEMU translates each as one step, so a boot takes 10 % less time.
const TCG_PROCESSOR: &str = "max,-erms,-fsrm";

/// Method of executing the instructions of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// Execution by the processor itself.
    Kvm,
    /// Translation by QEMU.
    Tcg,
}

impl Accel {
    /// Returns QEMU's name of the method.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// QEMU as it is installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Qemu {
    pub path: PathBuf,
    /// Version, with the distribution's part.
    pub version: String,
    /// Whether it can confine itself by seccomp (`-sandbox`).
    pub sandbox: bool,
}

/// Returns the first QEMU in a list of directories such as `PATH`.
pub(super) fn find_qemu(path: Option<&OsStr>) -> Result<PathBuf, GuestError> {
    path.into_iter()
        .flat_map(std::env::split_paths)
        .map(|directory| directory.join(QEMU_PROGRAM))
        .find(|program| program.is_file())
        .ok_or(GuestError::NoQemu)
}

/// Reads version and features of a QEMU, which runs with the confinement of a guest. Also returns
/// the parts of the confinement that this machine does not support.
pub(super) async fn inspect(path: &Path) -> Result<(Qemu, DisallowedLayers), GuestError> {
    // Options take effect in their order: a QEMU without seccomp rejects the first option and does
    // not reach the second (QEMU v7.2.0, `softmmu/vl.c`).
    let with_sandbox = run_qemu(path, &["-sandbox", "on", "-version"]).await?;
    let sandbox = with_sandbox.succeeded;
    let answer = if sandbox {
        with_sandbox
    } else {
        run_qemu(path, &["-version"]).await?
    };
    let version = parse_version(&answer.text).ok_or_else(|| GuestError::UnknownQemu {
        program: path.to_owned(),
        output: answer.text.trim().to_owned(),
    })?;
    if version_numbers(version) < MIN_VERSION {
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
    Ok((qemu, answer.lacks))
}

/// Result of a QEMU that only printed information.
struct QemuOutput {
    succeeded: bool,
    /// Standard output and standard error.
    text: String,
    lacks: DisallowedLayers,
}

/// Runs a QEMU that only prints information.
async fn run_qemu(path: &Path, arguments: &[&str]) -> Result<QemuOutput, GuestError> {
    let unstarted = |source| GuestError::Spawn {
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
    let Some(WaitStatus::Exited(_, code)) = status else {
        // Neither a signal nor an unknown end shows that QEMU rejects an option.
        return Err(unstarted(std::io::Error::other(
            "its exit status is unknown",
        )));
    };
    Ok(QemuOutput {
        succeeded: code == 0,
        text: String::from_utf8_lossy(&text).into_owned(),
        lacks: confined.disallowed,
    })
}

/// Returns the text that follows `QEMU emulator version` in the first line.
fn parse_version(text: &str) -> Option<&str> {
    let version = text.lines().next()?.split("version ").nth(1)?.trim();
    version
        .starts_with(|first: char| first.is_ascii_digit())
        .then_some(version)
}

fn version_numbers(version: &str) -> (u32, u32) {
    let mut parts = version.split(|letter: char| !letter.is_ascii_digit());
    let mut next = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
    (next(), next())
}

/// Location of the memory of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MemorySource {
    /// In this file, so that the memory outlives the machine.
    Kept(PathBuf),
    /// Copy of this file. What the machine writes does not change the file.
    CopyOf(PathBuf),
}

/// Start of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StartMode {
    Boot {
        /// Path of the kernel file.
        kernel: PathBuf,
        /// Path of the archive of its first file system.
        initramfs: PathBuf,
    },
    /// The machine waits for the state of another machine and resumes from it.
    Resume,
}

/// Machine that runs a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    pub accel: Accel,
    pub memory: MemorySource,
    /// Size of the memory, in MiB.
    pub memory_mib: u32,
    pub start: StartMode,
    /// Descriptor of a connected socket to the agent.
    pub agent: RawFd,
    /// Descriptor of a connected socket for the control of QEMU.
    pub control: RawFd,
}

/// Returns the kernel's command line. With `panic=-1`, the kernel restarts at once after a panic,
/// and `-no-reboot` turns this into the end of QEMU. `rootfstype=ramfs` removes the size limit of
/// the first file system. A tmpfs holds half of the memory; if an archive needs more, the kernel
/// continues with a truncated file (Linux v6.12, `init/do_mounts.c`, `init_rootfs`;
/// `init/initramfs.c`, `do_populate_rootfs`).
///
/// QEMU keeps translated code by its address (QEMU v7.2, `accel/tcg/tb-hash.h`). Programs at random
/// addresses are therefore translated at each start. With `norandmaps`, a program starts in 14 ms
/// instead of 50 ms.
pub(super) fn command_line(accel: Accel) -> String {
    let addresses = match accel {
        Accel::Kvm => "",
        Accel::Tcg => "norandmaps ",
    };
    format!(
        "{addresses}console=ttyS0 quiet panic=-1 no_timer_check random.trust_cpu=on audit=0 rootfstype=ramfs rdinit={} -- {}",
        super::initramfs::userland::INIT,
        svclab_agent::INIT,
    )
}

/// Returns QEMU's arguments for a machine. The machine has no network card, no disk, no display,
/// and no access to the files of this machine. Its console is the standard output of QEMU.
pub(super) fn arguments(qemu: &Qemu, machine: &Machine) -> Vec<OsString> {
    let size = machine.memory_mib;
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
    // The machine type `microvm` boots faster, but hung in 2 of 6 boots with TCG.
    let kind = "q35,memory-backend=memory,graphics=off,sata=off,smbus=off,usb=off,vmport=off";
    let accel = match machine.accel {
        Accel::Kvm => machine.accel.name().to_owned(),
        Accel::Tcg => format!("{},tb-size={TRANSLATION_BUFFER_MIB}", machine.accel.name()),
    };
    add(&["-machine", kind, "-accel", &accel]);
    let processor = match machine.accel {
        Accel::Kvm => "max",
        Accel::Tcg => TCG_PROCESSOR,
    };
    add(&["-cpu", processor, "-smp", "1", "-m", &format!("{size}M")]);
    let (file, shared) = match &machine.memory {
        MemorySource::Kept(file) => (file, "on"),
        MemorySource::CopyOf(file) => (file, "off"),
    };
    // In QEMU's lists of options, a comma is written twice.
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
        &format!("virtserialport,chardev=agent,name={PORT_NAME}"),
    ]);
    add(&[
        "-chardev",
        &format!("socket,id=control,fd={}", machine.control),
    ]);
    add(&["-mon", "chardev=control,mode=control"]);
    match &machine.start {
        StartMode::Boot { kernel, initramfs } => {
            add(&["-append", &command_line(machine.accel)]);
            arguments.extend(["-kernel".into(), kernel.into()]);
            arguments.extend(["-initrd".into(), initramfs.into()]);
        }
        // The parts of the state to ignore must be set before QEMU reads the state.
        StartMode::Resume => add(&["-incoming", "defer"]),
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_parsed_from_output_of_qemu() {
        let output = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright\n";
        let version = parse_version(output).unwrap();
        assert_eq!(version, "7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)");
        assert_eq!(version_numbers(version), (7, 2));
        assert_eq!(version_numbers("10.0.2"), (10, 0));
        assert!(version_numbers("6.2.0") < MIN_VERSION);
        assert_eq!(super::parse_version("qemu: unknown option\n"), None);
        assert_eq!(super::parse_version("no version"), None);
    }

    #[test]
    fn arguments_machine_has_no_network_or_disk() {
        let qemu = Qemu {
            path: "qemu".into(),
            version: "7.2".to_owned(),
            sandbox: true,
        };
        let machine = Machine {
            accel: Accel::Tcg,
            memory: MemorySource::CopyOf("/tmp/a,b/memory".into()),
            memory_mib: crate::kernel::requirements::lab_memory::DEFAULT_MEMORY_MIB,
            start: StartMode::Resume,
            agent: 5,
            control: 6,
        };
        let words: Vec<String> = arguments(&qemu, &machine)
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect();
        insta::assert_snapshot!(words.join("\n"));
        for option in ["-netdev", "-drive", "-nic", "-virtfs", "-kernel"] {
            assert!(!words.iter().any(|word| word == option), "{option}");
        }
    }
}
