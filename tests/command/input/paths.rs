//! Tests untrusted paths. svclab opens no device or pipe, and follows no link out of a lab's
//! directory or when it writes. svclab prints no line of a file that a link outside led to.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::fake;
use crate::support::{LAB, run, stderr, stdout};

/// Content that no message may repeat.
const SECRET: &str = "root:$6$salt$hash:19000:0:99999:7:::";

/// A directory with a directory of labs, and a secret file beside that.
struct LabDirectory(tempfile::TempDir);

impl LabDirectory {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("labs")).expect("the directory can be created");
        fs::write(directory.path().join("secret"), format!("{SECRET}\n")).expect("written");
        Self(directory)
    }

    fn outside(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn lab(&self, name: &str) -> PathBuf {
        self.0.path().join("labs").join(name)
    }

    /// Writes a lab whose node is replayed from a dump.
    fn write_lab_with_dump(&self, dump: &str) -> PathBuf {
        let line = "leftovers: {iptables: []}";
        let text = LAB.replacen(line, &format!("dump: \"{dump}\""), 1);
        fs::write(self.lab("lab.yaml"), text).expect("the file can be written");
        self.lab("lab.yaml")
    }

    /// Returns the exit code and both output streams, without varying parts. Asserts that the
    /// secret is not printed.
    fn run_command(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = run(arguments);
        let text = stdout(&output) + &stderr(&output);
        assert!(!text.contains("$6$") && !text.contains("19000"), "{text}");
        let here = self.0.path().display().to_string();
        (output.status.code(), text.replace(&here, "DIR"))
    }
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn lab_not_a_regular_file_is_refused_at_once() {
    let place = LabDirectory::new();
    mkfifo(&place.lab("pipe.yaml"), Mode::S_IRWXU).expect("a pipe");
    symlink("/dev/zero", place.lab("zero.yaml")).expect("a link");
    symlink("loop.yaml", place.lab("loop.yaml")).expect("a link");
    fs::create_dir(place.lab("directory.yaml")).expect("the directory can be created");
    let mut output = String::new();
    for name in ["pipe.yaml", "zero.yaml", "loop.yaml", "directory.yaml"] {
        let path = path_text(&place.lab(name));
        let (code, text) = place.run_command(&["plan", &path]);
        // A directory without labs selects nothing.
        let expected = if name == "directory.yaml" { 4 } else { 2 };
        assert_eq!(code, Some(expected), "{text}");
        output += &text;
        for arguments in [
            &["rules", "--kube-version=v1.30.0", &path][..],
            &["diff", &path, &path],
            &["replay", &path, "--objects", &path],
            &["bisect", "--good", &path, "--bad", &path, "--probe=a->b"],
            &["claims", "--from", &path],
        ] {
            let (code, text) = place.run_command(arguments);
            assert_eq!(code, Some(2), "{arguments:?}: {text}");
        }
    }
    for kind in ["a named pipe", "a device", "symbolic links", "no lab in"] {
        assert!(output.contains(kind), "{output}");
    }
}

#[test]
fn proc_file_without_end_is_refused() {
    let place = LabDirectory::new();
    // Regular files by type; `/proc/kmsg` has no data and would block.
    for path in ["/proc/self/mem", "/proc/kmsg", "/proc/self/pagemap"] {
        let (code, text) = place.run_command(&["plan", &format!("{path}/../../../{path}")]);
        assert!(matches!(code, Some(2 | 4)), "{text}");
        let (code, text) = place.run_command(&["diff", path, path]);
        assert_eq!(code, Some(2), "{text}");
    }
}

#[test]
fn dump_outside_of_the_labs_directory_is_refused() {
    let place = LabDirectory::new();
    symlink("../secret", place.lab("link")).expect("a link");
    symlink("..", place.lab("up")).expect("a link");
    fs::create_dir(place.lab("node")).expect("the directory can be created");
    symlink("../../secret", place.lab("node/iptables-save")).expect("a link");
    let secret = path_text(&place.outside("secret"));
    let proxy = path_text(&fake::write_fake_kube_proxy(place.0.path(), fake::SYNCS));
    for dump in [
        "../secret",
        "link",
        "up/secret",
        "node",
        &secret,
        "/dev/stdin",
    ] {
        let lab = path_text(&place.write_lab_with_dump(dump));
        let (code, text) = place.run_command(&["plan", &lab]);
        assert_eq!(code, Some(2), "{text}");
        assert!(
            text.contains("the path is outside the lab's directory"),
            "{dump}: {text}"
        );
        assert!(text.contains("--allow-outside"), "{dump}: {text}");
        let verify = ["verify", "--kernel=host", "--kube-proxy", &proxy, &lab];
        let (code, text) = place.run_command(&verify);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("--allow-outside"), "{dump}: {text}");
        if dump != "/dev/stdin" {
            let (code, text) = place.run_command(&[&verify[..], &["--allow-outside"]].concat());
            assert_eq!(code, Some(2), "{text}");
            assert!(text.contains("ERROR lab/policy=Local"), "{dump}: {text}");
            assert!(
                !text.contains("outside the lab's directory"),
                "{dump}: {text}"
            );
            let (code, text) = place.run_command(&["plan", "--allow-outside", &lab]);
            assert_eq!(code, Some(2), "{text}");
            assert!(
                !text.contains("outside the lab's directory"),
                "{dump}: {text}"
            );
        }
    }
}

#[test]
fn dump_below_the_labs_directory_is_read() {
    let place = LabDirectory::new();
    fs::create_dir(place.lab("node")).expect("the directory can be created");
    let rules = "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n";
    fs::write(place.lab("node/iptables-save"), rules).expect("the file can be written");
    symlink("node", place.lab("link")).expect("a link");
    for dump in [
        "node",
        "./node",
        "node/../node",
        "link",
        "node/iptables-save",
    ] {
        let lab = path_text(&place.write_lab_with_dump(dump));
        let (_, text) = place.run_command(&["plan", &lab]);
        assert!(
            !text.contains("outside the lab's directory") && !text.contains("no such file"),
            "{text}"
        );
    }
}

#[test]
fn file_behind_a_link_is_not_quoted() {
    let place = LabDirectory::new();
    for content in [
        format!("{SECRET}\n"),
        format!("a: [{SECRET}\n"),
        format!("apiVersion: v1\nkind: Node\nmetadata: {{name: \"{SECRET}\"}}\n"),
        format!("apiVersion: svclab/v1\nkind: Lab\n\"{SECRET}\": 1\n"),
        format!("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j {SECRET}\n{SECRET}\nCOMMIT\n"),
    ] {
        fs::write(place.outside("secret"), content).expect("the file can be written");
        let _ = fs::remove_file(place.lab("lab.yaml"));
        symlink("../secret", place.lab("lab.yaml")).expect("a link");
        let _ = fs::remove_file(place.lab("iptables-save"));
        symlink("../secret", place.lab("iptables-save")).expect("a link");
        let lab = path_text(&place.lab("lab.yaml"));
        let dump = path_text(&place.lab("iptables-save"));
        let labs = path_text(place.lab("x").parent().expect("a directory"));
        let (code, text) = place.run_command(&["plan", &lab]);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("the path contains a symbolic link"), "{text}");
        assert!(
            text.contains("use the path without symbolic links: DIR/secret"),
            "{text}"
        );
        for arguments in [
            &["run", "--topologies", &labs][..],
            &["run", "--format=json", "--topologies", &labs],
            &["run", "--format=junit", "--topologies", &labs],
            &["run", "--format=github", "--topologies", &labs],
            &["rules", "--kube-version=v1.30.0", &lab],
            &["diff", &dump, &dump],
            &["replay", &dump, "--objects", &lab],
            &["replay", &dump, "--lenient", "--probe=a->b"],
        ] {
            place.run_command(arguments);
        }
    }
}

/// A lab that parses but cannot be prepared is quoted no more than a lab that does not parse.
#[test]
fn case_behind_a_link_is_not_quoted() {
    let place = LabDirectory::new();
    let secret = "$6$salt19000";
    let proxy = fake::write_fake_kube_proxy(place.0.path(), fake::SYNCS);
    let proxy = path_text(&proxy);
    let rules = format!("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j {secret}\n{secret}\nCOMMIT\n");
    fs::write(place.lab("hidden"), rules).expect("the file can be written");
    fs::create_dir(place.lab("node")).expect("the directory can be created");
    symlink("../hidden", place.lab("node/iptables-save")).expect("a link");
    let part = |from: &str, to: &str| {
        let text = LAB.replace(from, to);
        assert_ne!(text, LAB, "{from}");
        text
    };
    for text in [
        part(
            "from: pod/default/client",
            &format!("from: \"pod/default/{secret}\""),
        ),
        part(
            "to: \"service/default/web:80",
            &format!("to: \"service/default/{secret}:80"),
        ),
        part("endpoints: [web]", &format!("endpoints: [\"{secret}\"]")),
        part("nodeName: node-1", &format!("nodeName: \"{secret}\"")),
        part("podIP: 10.244.1.10", &format!("podIP: \"{secret}\"")),
        part("leftovers: {iptables: []}", "dump: node"),
        part("leftovers: {iptables: []}", &format!("dump: \"{secret}\"")),
        part(
            "kubeProxy: {",
            &format!("kubeProxy: {{binary: \"./{secret}\", "),
        ),
    ] {
        fs::write(place.outside("secret"), text).expect("the file can be written");
        let _ = fs::remove_file(place.lab("lab.yaml"));
        symlink("../secret", place.lab("lab.yaml")).expect("a link");
        let lab = path_text(&place.lab("lab.yaml"));
        let case = format!("{lab}/policy=Local");
        let other_case = format!("{lab}/policy=Cluster");
        let dump = path_text(&place.lab("node/iptables-save"));
        for arguments in [
            &["plan", &lab][..],
            &["run", &lab],
            &["run", "--format=json", &lab],
            &["run", "--format=junit", &lab],
            &["run", "--format=github", &lab],
            &["explain", &lab],
            &["why", &lab],
            &["claims", &lab],
            &["up", &case],
            &["bisect", "--good", &case, "--bad", &other_case],
        ] {
            let (code, text) = place.run_command(arguments);
            assert_eq!(code, Some(2), "{arguments:?}: {text}");
        }
        // The dump and the program of the command line replace the lab's `dump` and `binary`.
        place.run_command(&["replay", &dump, "--lenient", "--objects", &case]);
        place.run_command(&["verify", "--kernel=host", "--kube-proxy", &proxy, &lab]);
    }
}

#[test]
fn lab_behind_a_link_runs() {
    let place = LabDirectory::new();
    fs::write(place.outside("good.yaml"), LAB).expect("the file can be written");
    symlink("../good.yaml", place.lab("lab.yaml")).expect("a link");
    let (code, text) = place.run_command(&["plan", &path_text(&place.lab("lab.yaml"))]);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn lab_name_with_newline_prints_no_extra_line() {
    let place = LabDirectory::new();
    let name = "x\nPASS other  call: connected 2\n.yaml";
    fs::write(place.lab(name), "kind: Lab\n").expect("the file can be written");
    for format in ["human", "junit", "github"] {
        let labs = path_text(&place.lab(""));
        let (code, text) = place.run_command(&["run", "--format", format, &labs]);
        assert_eq!(code, Some(2), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("PASS")), "{text}");
        let quoted = r"x\nPASS other  call: connected 2\n.yaml";
        assert!(text.contains(quoted), "{text}");
    }
}

#[test]
fn result_file_behind_link_is_refused() {
    let place = LabDirectory::new();
    fs::write(place.lab("lab.yaml"), LAB).expect("the file can be written");
    let lab = format!("{}/policy=Cluster", path_text(&place.lab("lab.yaml")));
    symlink("secret", place.outside("link")).expect("a link");
    symlink("labs", place.outside("folder")).expect("a link");
    mkfifo(&place.outside("pipe"), Mode::S_IRWXU).expect("a pipe");
    let mut output = String::new();
    for name in ["link", "pipe", "labs"] {
        let written = format!("json={}", path_text(&place.outside(name)));
        let (code, text) = place.run_command(&["run", "--kernel=host", "--write", &written, &lab]);
        assert_eq!(code, Some(3), "{text}");
        output += &text;
    }
    let folder = path_text(&place.outside("folder"));
    let (code, text) = place.run_command(&["run", "--kernel=host", "--report", &folder, &lab]);
    assert_eq!(code, Some(3), "{text}");
    for kind in ["the target is a symbolic link", "not a regular file"] {
        assert!(output.contains(kind), "{output}");
    }
    assert!(text.contains("the target is a symbolic link"), "{text}");
    let secret = fs::read_to_string(place.outside("secret")).expect("the secret");
    assert_eq!(secret, format!("{SECRET}\n"));
}

#[test]
fn written_results_are_whole_or_absent() {
    let place = LabDirectory::new();
    fs::write(place.lab("lab.yaml"), LAB).expect("the file can be written");
    let lab = format!("{}/policy=Cluster", path_text(&place.lab("lab.yaml")));
    let results = place.outside("results.json");
    fs::write(&results, "results of another run").expect("the file can be written");
    let written = format!("json={}", path_text(&results));
    let (code, text) = place.run_command(&["run", "--kernel=host", "--write", &written, &lab]);
    assert_eq!(code, Some(0), "{text}");
    let text = fs::read_to_string(&results).expect("results");
    serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
    let mut left: Vec<String> = fs::read_dir(place.0.path())
        .expect("a directory")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    left.sort();
    assert_eq!(left, ["labs", "results.json", "secret"]);
}
