//! Tests that no command prints terminal control sequences from labs, objects, dumps, arguments or
//! programs.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Output, Stdio};

use crate::fake;
use crate::support::{LAB, stderr, stdout, svclab, write_lab};

/// Returns control characters, each in its own text: C0, DEL, C1, and bidirectional controls.
fn hostile_texts() -> Vec<String> {
    let controls = ('\u{1}'..='\u{8}')
        .chain('\u{b}'..='\u{1f}')
        .chain('\u{7f}'..='\u{9f}')
        .chain(['\u{61c}', '\u{200e}', '\u{200f}'])
        .chain('\u{202a}'..='\u{202e}')
        .chain('\u{2066}'..='\u{2069}');
    controls
        .map(|control| match control {
            '\u{1b}' => "\u{1b}[2J\u{1b}]0;title\u{7}".to_owned(),
            '\r' => "\r::error::x".to_owned(),
            control => format!("{control}x"),
        })
        .collect()
}

/// Returns two texts that a terminal or a CI runner obeys at once, and all texts joined.
fn sample_texts() -> [String; 3] {
    let control_sequence = "\u{1b}[2J\u{1b}]0;title\u{7}".to_owned();
    [
        control_sequence,
        "\r::error::x".to_owned(),
        hostile_texts().concat(),
    ]
}

fn map_joined<T>(items: impl Iterator<Item = T>, written: impl Fn(T) -> String) -> String {
    items.fold(String::new(), |text, one| text + &written(one))
}

/// Renders each character of the text as a YAML escape.
fn yaml_escaped(text: &str) -> String {
    map_joined(text.chars(), |letter| {
        format!("\\U{:08x}", u32::from(letter))
    })
}

fn is_control(letter: char) -> bool {
    letter.is_control() && letter != '\n' && letter != '\t'
        || "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}".contains(letter)
        || "\u{2066}\u{2067}\u{2068}\u{2069}".contains(letter)
}

/// Asserts that the output contains no control characters. Returns both streams.
#[track_caller]
fn checked_output(output: &Output) -> String {
    for stream in [&output.stdout, &output.stderr] {
        let text = std::str::from_utf8(stream).expect("UTF-8");
        assert!(!text.contains(is_control), "{text:?}");
    }
    assert_ne!(output.status.code(), Some(101), "{output:?}");
    stdout(output) + &stderr(output)
}

#[track_caller]
fn run_checked(arguments: &[&str]) -> String {
    let output = svclab().args(arguments).output().expect("svclab starts");
    checked_output(&output)
}

/// Returns the field with all hostile texts joined, in double quotes.
fn with_all_hostile_texts(field: &str) -> String {
    let joined: String = hostile_texts()
        .iter()
        .map(|text| yaml_escaped(text))
        .collect();
    field.replace("HOSTILE", &format!("\"{joined}\""))
}

#[test]
fn lab_with_control_characters_prints_none() {
    for (good, hostile_field) in [
        (
            "about: A pod calls a service on its own node.",
            "about: HOSTILE",
        ),
        ("version: v1.30", "version: HOSTILE"),
        ("call: {from", "HOSTILE: {from"),
        ("metadata: {name: lab}", "metadata: {name: HOSTILE}"),
        ("kind: Lab", "kind: HOSTILE"),
        ("policy:", "HOSTILE:"),
        ("spec:\n  about", "HOSTILE: 1\nspec:\n  about"),
        ("kind: Service", "kind: HOSTILE"),
        (
            "apiVersion: v1\nkind: Node",
            "apiVersion: HOSTILE\nkind: Node",
        ),
        ("metadata: {name: web,", "metadata: {name: HOSTILE,"),
        ("podCIDR: 10.244.1.0/24", "podCIDR: HOSTILE"),
        ("clusterIP: 10.96.0.10", "clusterIP: HOSTILE"),
    ] {
        assert!(LAB.contains(good), "{good}");
        let (_directory, path) =
            write_lab(LAB.replacen(good, &with_all_hostile_texts(hostile_field), 1));
        let path = path.display().to_string();
        for command in ["plan", "run", "explain", "claims", "why", "verify"] {
            run_checked(&[command, &path]);
        }
    }
}

#[test]
fn lab_with_raw_bidi_controls_is_refused() {
    let text = LAB.replacen("A pod calls", "A \u{202e}pod\u{2066} calls", 1);
    let (_directory, path) = write_lab(text);
    let text = run_checked(&["plan", &path.display().to_string()]);
    assert!(
        text.contains("control character U+202E is not allowed in a lab"),
        "{text}"
    );
}

#[test]
fn object_with_control_characters_prints_none() {
    for text in sample_texts() {
        let labels = format!(
            "labels: {{app: web, note: \"{}\"}}, annotations: {{\"a{}\": b}}",
            yaml_escaped(&text),
            // A YAML key has at most 1024 characters.
            yaml_escaped(&text.chars().take(50).collect::<String>())
        );
        let (directory, path) = write_lab(LAB.replacen("labels: {app: web}", &labels, 1));
        let plan = run_checked(&["plan", &path.display().to_string()]);
        assert!(
            plan.contains("control characters of this Pod are replaced by U+FFFD")
                && plan.contains("# lab/policy=Cluster"),
            "{plan}"
        );
        let objects = directory.path().join("objects.yaml");
        let (_, rest) = LAB.split_once("---\n").expect("objects");
        let named = format!(
            "name: \"web{}\", namespace: default}}\nspec:\n  clusterIP",
            yaml_escaped(&text)
        );
        let rest = rest.replacen(
            "name: web, namespace: default}\nspec:\n  clusterIP",
            &named,
            1,
        );
        fs::write(&objects, rest).expect("the file can be written");
        let objects = objects.display().to_string();
        let rules = run_checked(&["rules", "--kube-version=v1.30.0", "--node=node-1", &objects]);
        assert!(rules.contains("is not a valid Kubernetes name"), "{rules}");
    }
}

#[test]
fn dump_with_control_characters_prints_none() {
    let rules = |comment: &str, chain: &str| {
        format!(
            "*filter\n:INPUT ACCEPT [0:0]\n:{chain} - [0:0]\n\
             -A INPUT -m comment --comment \"{comment}\" -j {chain}\n-A {chain} -j DROP\nCOMMIT\n"
        )
    };
    for text in sample_texts() {
        let directory = tempfile::tempdir().expect("a directory");
        let (first, second) = (directory.path().join("one"), directory.path().join("other"));
        fs::create_dir(&first).expect("the directory can be created");
        fs::create_dir(&second).expect("the directory can be created");
        fs::write(first.join("iptables-save"), rules("plain", "A"))
            .expect("the file can be written");
        fs::write(second.join("iptables-save"), rules(&text, "B"))
            .expect("the file can be written");
        fs::write(
            second.join(format!("notes{}", &text[..text.floor_char_boundary(200)])),
            "x",
        )
        .expect("the file can be written");
        fs::write(second.join("ip-addr"), format!("{text} what is this\n")).expect("written");
        let (first, second) = (first.display().to_string(), second.display().to_string());
        for arguments in [
            &["diff", &first, &second][..],
            &["diff", &first, &second, "--format=json"],
            &["replay", &second, "--probe=x->y"],
            &["bisect", "--good", &first, "--bad", &second, "--probe=x->y"],
        ] {
            run_checked(arguments);
        }
        let file = format!("{second}/iptables-save");
        let text = run_checked(&["diff", &format!("{first}/iptables-save"), &file]);
        assert!(text.contains("-j B"), "{text}");
        let json = run_checked(&[
            "diff",
            "--format=json",
            &format!("{first}/iptables-save"),
            &file,
        ]);
        serde_json::from_str::<serde_json::Value>(&json).expect("JSON");
    }
}

#[test]
fn arguments_with_control_characters_print_none() {
    for text in sample_texts() {
        let flag = format!("--{text}");
        let named = format!("--format={text}");
        let path = format!("/no/such/{text}.yaml");
        for arguments in [
            &[text.as_str()][..],
            &["run", &flag],
            &["run", &named],
            &["run", &text],
            &["run", &path],
            &["plan", "--topologies", &path],
            &["claims", "--from", &path],
            &["diff", &path, &path],
            &["replay", &path],
            &["rules", "--kube-version", &text],
            &["rules", "--kube-version=v1.30.0", &path],
            &["bisect", "--good", &path, "--bad", &path, "--probe", &text],
            &["exec", "--lab", &text, "node-1", "--", "true"],
            &["kernel", "path", &text],
        ] {
            let output = svclab()
                .args(arguments)
                .env("XDG_RUNTIME_DIR", "/no/such")
                .output()
                .expect("svclab starts");
            checked_output(&output);
        }
    }
}

#[test]
fn argument_with_invalid_utf8_prints_none() {
    let odd = std::ffi::OsStr::from_bytes(b"\xff\x1b[2J\x9b");
    let output = svclab()
        .arg("run")
        .arg(odd)
        .output()
        .expect("svclab starts");
    checked_output(&output);
}

#[test]
fn program_by_hand_with_control_characters_prints_none() {
    let joined: String = hostile_texts().concat();
    let octal = map_joined(joined.bytes(), |byte| format!("\\\\{byte:03o}"));
    let command = format!("\"sh -c 'printf \\\"{octal}\\\" >&2; exit 3'\"");
    let line = "leftovers: {iptables: []}";
    let text = LAB.replacen(line, &format!("byHand: {{commands: [{command}]}}"), 1);
    let (_directory, path) = write_lab(text);
    let case = format!("{}/policy=Cluster", path.display());
    for format in ["human", "json", "junit", "github"] {
        let text = run_checked(&["run", "--kernel=host", "--format", format, &case]);
        assert!(text.contains("failed on node-1"), "{text}");
    }
}

#[test]
fn kube_proxy_log_with_control_characters_prints_none() {
    let directory = tempfile::tempdir().expect("a directory");
    let joined: String = hostile_texts().concat();
    let hex = map_joined(joined.bytes(), |byte| format!("\\x{byte:02x}"));
    let says = format!("print STDERR \"said {hex} end\\n\"; exit 3;");
    let program = fake::write_fake_kube_proxy(directory.path(), &says);
    let (_lab, path) = write_lab(fake::lab_without_rules());
    for format in ["human", "json", "junit", "github"] {
        let text = run_checked(&[
            "run",
            "--kernel=host",
            "--format",
            format,
            "--kube-proxy",
            &program.display().to_string(),
            &path.display().to_string(),
        ]);
        assert!(text.contains("said "), "{text}");
    }
}

/// Whether the GitHub runner interprets a line of standard error as a command.
fn is_command(line: &str) -> bool {
    line.trim_start().starts_with("::") || line.contains("##[")
}

#[test]
fn github_messages_on_stderr_contain_no_commands() {
    let (_directory, path) = write_lab("::error::a\n\r::error::b\r::error::c ##[error]d\n");
    let path = path.display().to_string();
    let name = "x\n::error::e\r::error::f ##[error]g";
    for arguments in [
        &["run", "--format", "github", &path][..],
        &["run", "--format=github", name],
        &["run", "--format", "github", &format!("--{name}")],
    ] {
        let output = svclab().args(arguments).output().expect("svclab starts");
        let text = checked_output(&output);
        assert!(text.contains("::error::"), "{text}");
        // On standard output, only svclab's own commands are allowed.
        let is_own = |line: &&str| {
            ["::group::lab", "::endgroup::", "::error file="]
                .iter()
                .any(|own| line.starts_with(own))
        };
        let stderr_text = stderr(&output);
        let printed = stdout(&output);
        let foreign = printed.lines().filter(|line| !is_own(line));
        let found: Vec<&str> = foreign
            .chain(stderr_text.lines())
            .filter(|line| is_command(line))
            .collect();
        assert_eq!(found, Vec::<&str>::new(), "{text}");
    }
    // The GitHub runner also reads the output of any other command of a job.
    let output = svclab()
        .args(["plan", name])
        .env("GITHUB_ACTIONS", "true")
        .output()
        .expect("svclab starts");
    assert!(!checked_output(&output).lines().any(is_command));
}

#[test]
fn message_to_closed_stderr_does_not_panic() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = svclab()
        .args(["diff", "/no/such", "/no/such"])
        .stdout(Stdio::null())
        .stderr(writer)
        .status()
        .expect("svclab starts");
    assert_eq!(status.code(), Some(2));
}
