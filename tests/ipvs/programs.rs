//! Programs in guests that labs do not need, and tests do.

use std::path::{Path, PathBuf};

use svclab_runner::kernel::{Agent, Session};

use super::guests::guest;

/// Where a program of this machine lies.
fn installed(name: &str) -> PathBuf {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("{name} is not installed: run scripts/test, which installs it"))
}

/// A guest that has `ipvsadm` and `ip`.
pub async fn with_ipvsadm() -> Agent {
    guest("6.12")
        .await
        .with_programs(["ipvsadm", "ip"].map(installed))
        .start()
        .await
        .expect("a guest")
}

/// What a program says in a namespace of a lab.
pub async fn says(
    session: &mut Session,
    namespace: &str,
    program: &str,
    arguments: &[&str],
    input: &str,
) -> String {
    let finished = session
        .run(namespace, program, arguments, input)
        .await
        .expect("the program starts");
    assert!(finished.success, "{program}: {}", finished.stderr);
    finished.stdout
}

/// What `ipvsadm` reads in a namespace, line by line, sorted: the kernel tells
/// virtual servers in an order of its own. From 1.30 on it says of tunnels of
/// which kind they are; those of older kernels are of this one.
pub async fn ipvs(session: &mut Session, namespace: &str) -> Vec<String> {
    let said = says(session, namespace, "ipvsadm", &["-S", "-n"], "").await;
    sorted(&said.replace(" --tun-type ipip\n", "\n"))
}

/// The lines of a text, sorted.
pub fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}
