//! State of a QEMU process, as the kernel reports it.

use std::collections::BTreeSet;
use std::fs;

use nix::libc::{O_ACCMODE, O_RDONLY};

/// State of a QEMU process while it runs a guest.
pub struct QemuState {
    pub status: String,
    descriptors: BTreeSet<String>,
    root: BTreeSet<String>,
    namespaces: Vec<&'static str>,
    mounts: String,
    environment: String,
    interfaces: usize,
}

/// Namespaces that QEMU must not share with svclab.
const NAMESPACES: [&str; 6] = ["cgroup", "ipc", "mnt", "net", "pid", "uts"];

impl QemuState {
    /// Reads the state of a process; `None` if the process has ended.
    pub fn read(process: i32, other_process: u32) -> Option<Self> {
        let file = |name: &str| {
            let bytes = fs::read(format!("/proc/{process}/{name}")).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
        let descriptors = descriptors.filter_map(|entry| {
            let entry = entry.ok()?;
            let leads_to = fs::read_link(entry.path()).ok()?;
            let mut name = leads_to.to_string_lossy().into_owned();
            // A file of the cache, whose access mode matters.
            if name.ends_with("/memory") {
                let number = entry.file_name().into_string().ok()?;
                let info = file(&format!("fdinfo/{number}"))?;
                let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
                let flags = i32::from_str_radix(flags.trim(), 8).ok()?;
                if flags & O_ACCMODE != O_RDONLY {
                    name.push_str(" (writable)");
                }
            }
            // The type of a numbered object such as `socket:[1]`.
            Some(name.split(":[").next().map_or(name.clone(), str::to_owned))
        });
        let root = fs::read_dir(format!("/proc/{process}/root/")).ok()?;
        let root = root.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let namespace =
            |process: &str, kind: &str| fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
        let separate = NAMESPACES.into_iter().filter(|kind| {
            let namespace_of_qemu = namespace(&process.to_string(), kind);
            namespace_of_qemu.is_some()
                && namespace_of_qemu != namespace(&other_process.to_string(), kind)
        });
        Some(Self {
            descriptors: descriptors.collect(),
            root: root.collect(),
            namespaces: separate.collect(),
            mounts: file("mountinfo")?,
            environment: file("environ")?,
            interfaces: file("net/dev")?.lines().skip(2).count(),
            status: file("status")?,
        })
    }

    pub fn field(&self, name: &str) -> &str {
        let line = self.status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {}", self.status))
            .trim_start_matches(':')
            .trim()
    }

    /// Asserts the restrictions that hold on every machine for every user.
    pub fn assert_unprivileged(&self) {
        for capabilities in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(
                self.field(capabilities),
                "0000000000000000",
                "{capabilities}"
            );
        }
        assert_eq!(self.field("NoNewPrivs"), "1");
        assert_eq!(self.field("Seccomp"), "2");
        for descriptor in &self.descriptors {
            let known = [
                "/dev/null",
                "/memfd:svclab (deleted)",
                "anon_inode:[eventfd]",
                "anon_inode:[eventpoll]",
                "anon_inode:[signalfd]",
                "anon_inode",
                "pipe",
                "socket",
                // Of a boot with KVM.
                "/dev/kvm",
                "anon_inode:kvm-vm",
                "anon_inode:kvm-vcpu:0",
                "anon_inode:kvm-vcpu-stats:0",
                "anon_inode:kvm-vm-stats",
            ];
            // Libraries and firmware, which QEMU opens in its read-only root, and the memory and
            // state of a snapshot, which QEMU receives opened for reading.
            let read = descriptor.starts_with("/usr/")
                || ["/memory", "/state"]
                    .iter()
                    .any(|file| descriptor.ends_with(file));
            let is_known = read || known.contains(&descriptor.as_str());
            assert!(is_known, "{descriptor} is open, but unknown");
        }
        for variable in self.environment.split_terminator('\0') {
            let name = variable.split('=').next();
            assert!(
                matches!(name, Some("PATH" | "LD_LIBRARY_PATH")),
                "{variable}"
            );
        }
    }

    /// Also asserts the restrictions on machines that allow namespaces.
    pub fn assert_confined(&self) {
        self.assert_unprivileged();
        assert_eq!(self.field("CapBnd"), "0000000000000000");
        assert_eq!(self.namespaces, NAMESPACES);
        assert!(self.field("NSpid").ends_with("\t1"), "{}", self.status);
        let root = [
            "bin", "dev", "etc", "lib", "lib32", "lib64", "nix", "proc", "sbin", "usr",
        ];
        for name in &self.root {
            // A QEMU that is a script of these tests is below `/tmp`.
            assert!(
                root.contains(&name.as_str()),
                "{name} in the root directory"
            );
        }
        for mount in self.mounts.lines() {
            let options = mount.split(' ').nth(5).expect("options");
            assert!(options.split(',').any(|option| option == "ro"), "{mount}");
        }
        // Only the loopback interface, which is down.
        assert_eq!(self.interfaces, 1);
    }

    /// Whether QEMU maps the memory in the cache, without a copy.
    pub fn shares_memory(&self) -> bool {
        self.descriptors
            .iter()
            .any(|name| name.ends_with("/memory"))
    }

    /// Returns the four IDs of a `Uid` or `Gid` line.
    pub fn ids(&self, name: &str) -> Vec<u32> {
        let numbers = self.field(name).split_whitespace();
        numbers
            .map(|number| number.parse().expect("a number"))
            .collect()
    }
}
