//! The machine outside of a lab, with the targets of the attempts. Starts a run whose probe waits
//! for packets that never arrive, and the intruder.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use svclab_test_support::can_trace_drops;
use svclab_test_support::programs::copy_programs;
use svclab_test_support::running::waiting;
use tempfile::TempDir;

use super::{attempts, identity};

/// User that svclab runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    Root,
    Ordinary,
}

impl User {
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "as_root",
            Self::Ordinary => "as_an_ordinary_user",
        }
    }
}

/// Returns the users that the tests can run svclab as.
pub fn test_users() -> Vec<User> {
    if geteuid().is_root() {
        vec![User::Root, User::Ordinary]
    } else {
        vec![User::Ordinary]
    }
}

/// Targets of the attempts.
#[derive(Debug, Serialize, Deserialize)]
pub struct Target {
    pub secret: PathBuf,
    pub home: PathBuf,
    pub socket: PathBuf,
    pub abstract_socket: String,
    pub port: u16,
    pub process: i32,
    pub word: String,
}

pub struct Outcome {
    pub name: String,
    is_refused: bool,
    detail: String,
}

impl Outcome {
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.splitn(3, '\t');
        Some(Self {
            name: parts.next()?.to_owned(),
            is_refused: parts.next()? == "refused",
            detail: parts.next()?.to_owned(),
        })
    }

    /// Describes an unexpected result; `None` if the attempt met an expected refusal.
    pub fn complaint(&self) -> Option<String> {
        let expected: Vec<String> = match attempts::ATTEMPTS.iter().find(|a| a.name == self.name) {
            Some(attempt) => attempt.refusals.iter().map(|e| format!("{e:?}")).collect(),
            None => vec![format!("{:?}", Errno::ENODATA)],
        };
        let is_expected = self.is_refused && expected.contains(&self.detail);
        (!is_expected).then(|| {
            format!(
                "{}: {}, expected {}",
                self.name,
                self.detail,
                expected.join(" or ")
            )
        })
    }
}

/// A run and the targets around it.
pub struct Host {
    _directory: TempDir,
    target: Target,
    tcp: TcpListener,
    files: UnixListener,
    abstract_socket: UnixListener,
    run: Child,
    waiting: i32,
    agent: i32,
    /// Names of network namespaces before the run.
    namespace_names: Vec<OsString>,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.run.kill();
        let _ = self.run.wait();
    }
}

impl Host {
    /// Starts a run, and waits until its lab is built and its probes run.
    pub fn prepare(user: User) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), open).expect("permissions");
        let (secret, home) = (
            directory.path().join("secret"),
            directory.path().join("home"),
        );
        fs::write(&secret, "content that no lab may read").expect("a file");
        fs::create_dir(&home).expect("a home");
        let socket = directory.path().join("socket");
        let files = UnixListener::bind(&socket).expect("a socket");
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).expect("permissions");
        let process = std::process::id();
        let name = format!("svclab-escape-{process}-{}", user.name());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let abstract_socket = UnixListener::bind_addr(&address).expect("a socket");
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let target = Target {
            secret,
            home,
            socket,
            abstract_socket: name,
            port: tcp.local_addr().expect("an address").port(),
            process: i32::try_from(process).expect("the number fits"),
            word: format!("the-word-{process}"),
        };
        let namespace_names = namespace_names();
        let (run, waiting, agent) = start(user, &directory, &target);
        Self {
            _directory: directory,
            target,
            tcp,
            files,
            abstract_socket,
            run,
            waiting,
            agent,
            namespace_names,
        }
    }

    /// Returns what is wrong with the user and the namespaces of the agent, as seen from outside.
    pub fn check_agent(&self, user: User) -> Vec<String> {
        let agent = self.agent.to_string();
        let (own_namespaces, agent_namespaces) =
            (identity::namespaces("self"), identity::namespaces(&agent));
        let shared = own_namespaces
            .iter()
            .zip(&agent_namespaces)
            .filter(|(own, its)| own == its);
        let mut wrong: Vec<String> = shared
            .map(|(own, _)| format!("the agent shares {own}"))
            .collect();
        let users = match user {
            User::Ordinary if geteuid().is_root() => 1000..1001,
            User::Ordinary => geteuid().as_raw()..geteuid().as_raw() + 1,
            User::Root => 61_184..65_519,
        };
        let rights = identity::privileges(&agent);
        for name in ["Uid: ", "Gid: "] {
            let line = rights.iter().find_map(|line| line.strip_prefix(name));
            let numbers = line.unwrap_or_default().split(' ');
            let numbers: Vec<u32> = numbers.filter_map(|number| number.parse().ok()).collect();
            if numbers.len() != 4 || !numbers.iter().all(|one| users.contains(one)) {
                wrong.push(format!("the agent has {name}{numbers:?}"));
            }
        }
        if namespace_names() != self.namespace_names {
            wrong.push(format!("/run/netns contains {:?}", namespace_names()));
        }
        wrong
    }

    /// Starts the intruder and returns the results of its attempts.
    pub fn intrude(&self) -> Vec<Outcome> {
        let target = serde_json::to_string(&self.target).expect("JSON");
        let intruder = std::env::current_exe().expect("this program");
        let output = Command::new(intruder)
            .arg("intruder")
            .args([self.waiting.to_string(), self.agent.to_string(), target])
            .env_clear()
            .output()
            .expect("an intruder");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text.lines().filter_map(Outcome::parse).collect()
    }

    /// Returns the targets that an attempt has reached.
    pub fn touched(&self) -> Vec<String> {
        let mut touched = Vec::new();
        let is_alone = |accepted: std::io::Result<()>| {
            accepted.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        let nobody = [
            (
                self.tcp.set_nonblocking(true),
                self.tcp.accept().map(drop),
                "TCP",
            ),
            (
                self.files.set_nonblocking(true),
                self.files.accept().map(drop),
                "file",
            ),
            (
                self.abstract_socket.set_nonblocking(true),
                self.abstract_socket.accept().map(drop),
                "nameless",
            ),
        ];
        for (set, accepted, which) in nobody {
            set.expect("the socket can be non-blocking");
            if !is_alone(accepted) {
                touched.push(format!("the {which} socket received a connection"));
            }
        }
        for made in ["/usr/svclab-was-here", "/svclab-was-here"] {
            if PathBuf::from(made).exists() {
                touched.push(format!("{made} was created"));
            }
        }
        touched
    }
}

/// Returns the names of the network namespaces of `ip netns`.
fn namespace_names() -> Vec<OsString> {
    let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let mut names: Vec<OsString> = names.map(|name| name.file_name()).collect();
    names.sort();
    names
}

/// Returns the link targets of the descriptors of a process.
fn descriptors(process: &Child) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(format!("/proc/{}/fd", process.id())).expect("a process");
    entries
        .flatten()
        .filter_map(|each| fs::read_link(each.path()).ok())
        .map(|to| to.display().to_string())
}

/// Starts a run as a user. Returns the run, the process outside that waits for the agent, and the
/// agent.
fn start(user: User, directory: &TempDir, target: &Target) -> (Child, i32, i32) {
    // Every user can read the copy.
    let program = copy_programs(directory.path());
    let labs = directory.path().join("labs");
    fs::create_dir(&labs).expect("a directory");
    let from = svclab_test_support::root().join("topologies/canal-stale-rule.yaml");
    fs::copy(from, labs.join("canal-stale-rule.yaml")).expect("a copy");
    let mut command = if user == User::Ordinary && geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=1000", "--regid=1000", "--clear-groups"]);
        command.arg(&program);
        command
    } else {
        Command::new(&program)
    };
    // A descriptor without close-on-exec, which all started programs inherit.
    let left_open = File::open(&target.secret).expect("the file");
    let number = left_open.as_raw_fd();
    // SAFETY: one async-signal-safe system call is made between fork and exec, on a descriptor that
    // stays open during this function.
    unsafe {
        command.pre_exec(move || {
            let fd = std::os::fd::BorrowedFd::borrow_raw(number);
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
            Ok(())
        });
    }
    command
        .env("SVCLAB_TOPOLOGIES", &labs)
        .current_dir("/")
        .env("HOME", &target.home)
        .env("SECRET", &target.word)
        .stdout(Stdio::null());
    // Records full evidence; a privileged user also traces drops.
    let report = directory.path().join("report");
    fs::create_dir(&report).expect("a directory");
    fs::set_permissions(&report, fs::Permissions::from_mode(0o777)).expect("permissions");
    let report = report.display().to_string();
    let run = waiting::start(command, &["--report", &report]);
    let traces = descriptors(&run).any(|to| to.starts_with("anon_inode:bpf"));
    assert_eq!(traces, user == User::Root && can_trace_drops());
    let (waiting, agent) = waiting::find_agent(&run).expect("an agent");
    (run, waiting, agent)
}
