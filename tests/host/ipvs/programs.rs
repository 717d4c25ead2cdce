//! Guests with programs that the tests need and labs do not.

use std::path::{Path, PathBuf};

use svclab_runner::kernel::{Agent, Session};
use svclab_test_support::guests::new_guest;

/// Returns the path of an installed program.
fn installed(name: &str) -> PathBuf {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("{name} is not installed: run scripts/test, which installs it"))
}

/// Starts a guest with `ipvsadm` and `ip`.
pub async fn guest_with_ipvsadm() -> Agent {
    new_guest("6.12")
        .await
        .with_programs(["ipvsadm", "ip"].map(installed))
        .start()
        .await
        .expect("a guest")
}

/// Runs a program in a namespace of a lab. Returns its standard output.
pub async fn run_program(
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

/// Returns the sorted lines of `ipvsadm -S -n` in a namespace: the kernel lists virtual servers in
/// arbitrary order. From 1.30 on, `ipvsadm` prints the type of tunnels, which is `ipip` for those
/// of older versions; the type is removed.
pub async fn save_virtual_servers(session: &mut Session, namespace: &str) -> Vec<String> {
    let output = run_program(session, namespace, "ipvsadm", &["-S", "-n"], "").await;
    sorted_lines(&output.replace(" --tun-type ipip\n", "\n"))
}

/// Returns the sorted lines of a text.
pub fn sorted_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}
