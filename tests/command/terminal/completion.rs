//! Tests the completion scripts, each in its shell.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::User;
use crate::SVCLAB;
use crate::support::{LAB, stderr, stdout, svclab};

/// Directory with labs, of which one is broken, and the files of a user.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let labs = directory.path().join("topologies");
        fs::create_dir_all(labs.join("group")).expect("a directory");
        let own = |name: &str| LAB.replace("{name: lab}", &format!("{{name: {name}}}"));
        fs::write(labs.join("first.yaml"), own("first")).expect("a lab");
        fs::write(labs.join("second.yaml"), own("second")).expect("a lab");
        fs::write(labs.join("group/inner.yaml"), own("inner")).expect("a lab");
        fs::write(labs.join("broken.yaml"), "spec: [").expect("a lab");
        fs::write(labs.join("odd $(touch evil) *.yaml"), own("odd")).expect("a lab");
        fs::write(labs.join("control\x1b[2J.yaml"), own("control")).expect("a lab");
        fs::write(directory.path().join("mine.yaml"), own("mine")).expect("a lab");
        fs::write(directory.path().join("notes.txt"), "").expect("a file");
        Self { directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns a shell that finds the program on its `PATH`.
    fn shell(&self, program: &str) -> Command {
        let programs = Path::new(SVCLAB).parent().expect("a directory");
        let mut path = vec![programs.to_owned()];
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        path.extend(std::env::split_paths(&inherited));
        let path = std::env::join_paths::<_, PathBuf>(path).expect("paths");
        let mut command = Command::new(program);
        command
            .current_dir(self.path())
            .env("PATH", path)
            .env("HOME", self.path())
            .env_remove("SVCLAB_TOPOLOGIES");
        command
    }

    /// Returns the candidates of a shell's own completion, for each line.
    fn fish(&self, line: &str) -> Vec<String> {
        let script = "svclab completions fish | source; complete -C \"$argv[1]\"";
        let mut command = self.shell("fish");
        let output = command
            .args(["--no-config", "-c", script, line])
            .output()
            .expect("fish starts");
        assert_eq!(stderr(&output), "", "{line}");
        let text = stdout(&output);
        let candidates = text.lines().map(|line| line.split('\t').next());
        candidates.flatten().map(str::to_owned).collect()
    }

    /// Returns the candidates that the script passes to zsh.
    fn zsh(&self, words: &[&str]) -> Vec<String> {
        // zsh splits a line; `_describe` shows candidates.
        let script = r#"
            compdef() { :; }
            _describe() { local name=$3; print -rl -- "${(@P)name}"; }
            source <(svclab completions zsh)
            words=("$@"); CURRENT=$#
            _clap_dynamic_completer_svclab
        "#;
        let mut command = self.shell("zsh");
        let output = command
            .args(["-f", "-c", script, "zsh"])
            .args(words)
            .output()
            .expect("zsh starts");
        assert_eq!(stderr(&output), "", "{words:?}");
        // The rest of a line is the description, and a backslash precedes a colon.
        let text = stdout(&output);
        let candidates = text.lines().map(|line| line.replace("\\:", "\0"));
        let candidates = candidates.map(|line| line.split(':').next().map(str::to_owned));
        candidates
            .flatten()
            .map(|name| name.replace('\0', ":"))
            .collect()
    }
}

/// bash at a terminal, which prints the candidates of each completion.
struct Bash(User);

impl Bash {
    fn start(place: &Place) -> Self {
        let mut command = place.shell("bash");
        command
            .args(["--norc", "--noprofile", "-i"])
            .env("INPUTRC", "/dev/null");
        let mut user = User::start(command, 400);
        user.send(
            "bind 'set enable-bracketed-paste off'; PS1=; source <(svclab completions bash)\r",
        );
        user.send(
            "list() { _svclab \"$@\"; printf '\\n<%s>' \"${COMPREPLY[@]}\"; echo; echo '<'end'>'; }\r",
        );
        user.send("complete -o nosort -F list svclab; echo rea''dy\r");
        user.read_until("ready");
        Self(user)
    }

    /// Returns the candidates for the end of a line.
    fn candidates(&mut self, line: &str) -> Vec<String> {
        self.0.send(&format!("{line}\t"));
        let text = self.0.read_until("<end>").replace("<end>", "");
        // Removes the line, and the completed part of it.
        self.0.send("\x15");
        let lines = text.lines().map(|line| line.trim_end_matches('\r'));
        let names = lines.filter_map(|line| line.strip_prefix('<')?.strip_suffix('>'));
        names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

#[test]
fn bash_completes_labs_and_cases() {
    let place = Place::new();
    let mut bash = Bash::start(&place);
    let labs = bash.candidates("svclab run ");
    for lab in [
        "first",
        "second",
        "group/inner",
        "group/",
        "broken",
        "mine.yaml",
    ] {
        assert!(labs.iter().any(|name| name == lab), "{lab}: {labs:?}");
    }
    assert!(
        !labs
            .iter()
            .any(|name| name.contains("notes") || name.contains("control")),
        "{labs:?}"
    );
    // bash replaces only the part after `=`.
    assert_eq!(
        bash.candidates("svclab run first/"),
        ["first/policy=Cluster", "first/policy=Local"]
    );
    assert_eq!(
        bash.candidates("svclab run first/policy="),
        ["Cluster", "Local"]
    );
    assert_eq!(
        bash.candidates("svclab explain -v second/policy=L"),
        ["Local"]
    );
    assert_eq!(
        bash.candidates("svclab run 'first/policy=L"),
        ["first/policy=Local"]
    );
    assert_eq!(
        bash.candidates("svclab run mine.yaml/policy=C"),
        ["Cluster"]
    );
    assert_eq!(
        bash.candidates("svclab run group/inner/policy=C"),
        ["Cluster"]
    );
    assert_eq!(bash.candidates("svclab run broken/"), Vec::<String>::new());
    assert_eq!(bash.candidates("svclab labs show sec"), ["second"]);
    assert_eq!(bash.candidates("svclab explain first --probe "), ["call"]);
    assert_eq!(
        bash.candidates("svclab why first/policy=Local --probe c"),
        ["call"]
    );
    assert_eq!(
        bash.candidates("svclab run --topologies topologies/group in"),
        ["inner"]
    );
    assert_eq!(
        bash.candidates("svclab run --topologies=topologies/group in"),
        ["inner"]
    );
    assert_eq!(bash.candidates("svclab comp"), ["completions"]);
    assert_eq!(bash.candidates("svclab run --last"), ["--last-failed"]);
    assert!(!place.path().join("evil").exists());
}

#[test]
fn bash_completes_a_line() {
    let place = Place::new();
    let mut user = Bash::start(&place).0;
    user.send("complete -o nosort -F _svclab svclab; echo rea''dy\r");
    user.read_until("ready\r\n");
    // Ctrl-A is the start of the line.
    for (typed, completed) in [
        (
            "svclab run first/pol\tL\t",
            "done svclab run first/policy=Local\r\n",
        ),
        ("svclab run sec\t", "done svclab run second\r\n"),
        (
            "svclab run --max-wait 3s second/policy=C\t",
            "done svclab run --max-wait 3s second/policy=Cluster\r\n",
        ),
    ] {
        user.send(typed);
        user.send("\x01echo do''ne \r");
        user.read_until(completed);
    }
}

#[test]
fn fish_completes_labs_and_cases() {
    let place = Place::new();
    let labs = place.fish("svclab run ");
    for lab in ["first", "second", "group/inner", "mine.yaml", "broken"] {
        assert!(labs.iter().any(|name| name == lab), "{lab}: {labs:?}");
    }
    let cases = ["first/policy=Cluster", "first/policy=Local"];
    assert_eq!(sorted(place.fish("svclab run first/policy=")), cases);
    assert_eq!(
        place.fish("svclab run first/policy=L"),
        ["first/policy=Local"]
    );
    assert_eq!(place.fish("svclab explain first --probe "), ["call"]);
    assert_eq!(place.fish("svclab run broken/"), Vec::<String>::new());
}

#[test]
fn zsh_completes_labs_and_cases() {
    let place = Place::new();
    let labs = place.zsh(&["svclab", "run", ""]);
    for lab in ["first", "second", "group/inner", "mine.yaml", "broken"] {
        assert!(labs.iter().any(|name| name == lab), "{lab}: {labs:?}");
    }
    let cases = ["first/policy=Cluster", "first/policy=Local"];
    assert_eq!(place.zsh(&["svclab", "run", "first/policy="]), cases);
    assert_eq!(
        place.zsh(&["svclab", "explain", "first", "--probe", ""]),
        ["call"]
    );
}

/// zsh loads the file of a package as the body of a function.
#[test]
fn zsh_first_completion_of_a_package_has_candidates() {
    let place = Place::new();
    let functions = place.path().join("functions");
    fs::create_dir(&functions).expect("a directory");
    let output = svclab()
        .args(["completions", "zsh"])
        .output()
        .expect("the command starts");
    fs::write(functions.join("_svclab"), output.stdout).expect("a file");
    let mut command = place.shell("zsh");
    command.args(["-f", "-i"]);
    let mut user = User::start(command, 200);
    user.send("PROMPT='%% '; fpath=(functions $fpath); autoload -Uz compinit; compinit -u -D; echo rea''dy\r");
    user.read_until("ready\r\n");
    user.send("svclab run first/policy=L\t");
    user.send("\x01echo do''ne \r");
    user.read_until("done svclab run first/policy=Local");
}

#[test]
fn completion_without_labs_is_silent() {
    let directory = tempfile::tempdir().expect("a directory");
    let complete = |variables: &[(&str, &str)], words: &[&str]| {
        let mut command = svclab();
        command
            .current_dir(directory.path())
            .env("SVCLAB_COMPLETE", "bash")
            .envs(variables.iter().copied())
            .arg("--")
            .args(words)
            .stdin(Stdio::null());
        command.output().expect("the command starts")
    };
    let index = ("_CLAP_COMPLETE_INDEX", "2");
    let missing = ("SVCLAB_TOPOLOGIES", "/nonexistent");
    let runtime = ("XDG_RUNTIME_DIR", "/nonexistent");
    for words in [
        ["svclab", "run", ""],
        ["svclab", "exec", ""],
        ["svclab", "down", ""],
    ] {
        let output = complete(&[index, missing, runtime], &words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert_eq!(stderr(&output), "", "{words:?}");
        // The rest are options, and the current directory.
        let text = stdout(&output);
        let is_other = |name: &str| name != "." && !name.starts_with('-');
        assert!(!text.lines().any(is_other), "{words:?}: {text}");
    }
    // Without a directory of labs, the embedded ones are candidates.
    let output = complete(&[index], &["svclab", "run", "local-ing"]);
    assert_eq!(stdout(&output), "local-ingress");
    // An index out of range, and a shell that is not known.
    let output = complete(&[("_CLAP_COMPLETE_INDEX", "9")], &["svclab"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let output = complete(&[("SVCLAB_COMPLETE", "tcsh")], &["svclab"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("unknown shell `tcsh`"),
        "{}",
        stderr(&output)
    );
}
