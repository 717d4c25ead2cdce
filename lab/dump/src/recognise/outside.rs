//! Parses commands that run another command, possibly on another host or in another network
//! namespace: `ssh`, `kubectl exec`, `docker run`, `nsenter`.

use super::commands::Command;
use super::place::Place;

/// Programs that run commands in containers.
const CONTAINER_PROGRAMS: [&str; 14] = [
    "kubectl",
    "oc",
    "k",
    "docker",
    "podman",
    "nerdctl",
    "crictl",
    "ctr",
    "lxc",
    "lxc-attach",
    "incus",
    "machinectl",
    "systemd-nspawn",
    "kubectl-node_shell",
];

/// Verbs of these programs that run a command.
const RUN_VERBS: [&str; 9] = [
    "exec",
    "debug",
    "run",
    "rsh",
    "shell",
    "attach",
    "console",
    "node-shell",
    "node_shell",
];

/// Programs that run commands on another host, with the verb that does so. The verb is empty if
/// there is none.
const REMOTE_PROGRAMS: [(&str, &str); 8] = [
    ("ssh", ""),
    ("mosh", ""),
    ("gcloud", "ssh"),
    ("vagrant", "ssh"),
    ("minikube", "ssh"),
    ("colima", "ssh"),
    ("multipass", "exec"),
    ("limactl", "shell"),
];

/// Options of `ssh` with a value (OpenSSH 9.2, `ssh.c`, `main`).
const SSH_VALUES: &str = "BbcDEeFIiJLlmOopQRSWw";

/// Maximum number of words that may begin the command inside other arguments.
const MAX_WORDS: usize = 32;

/// Maximum depth of commands that are searched for in other arguments.
const MAX_SEARCHES: usize = 2;

impl Command {
    /// Parses a command that runs another command outside of the shell. `None` for other programs.
    pub(super) fn parse_outside(name: &str, arguments: &[&str], depth: usize) -> Option<Self> {
        let remote = REMOTE_PROGRAMS.iter().find(|(program, _)| *program == name);
        Some(match (name, remote) {
            (_, Some(("ssh" | "mosh", _))) => Self::parse_ssh(arguments, depth),
            (_, Some((_, verb))) => {
                let verb = arguments.iter().position(|word| word == verb)?;
                let inner = inner_words(&arguments[verb + 1..], depth);
                Self {
                    host: Some(name.to_owned()),
                    ..Self::parse_inside(inner, Place::Node, depth)
                }
            }
            ("nsenter", _) => Self::parse_nsenter(arguments, depth),
            ("unshare", _) => {
                let is_net = |word: &&str| *word == "--net" || has_short_option(word, 'n');
                let has_net = arguments.iter().any(is_net);
                let place = if has_net {
                    Place::Elsewhere
                } else {
                    Place::Node
                };
                Self::parse_inside(inner_words(arguments, depth), place, depth)
            }
            _ if CONTAINER_PROGRAMS.contains(&name) => Self::parse_exec(name, arguments, depth),
            _ => return None,
        })
    }

    /// Parses `ssh [OPTIONS] [USER@]HOST [COMMAND]`.
    fn parse_ssh(arguments: &[&str], depth: usize) -> Self {
        let mut rest = arguments.iter().enumerate();
        while let Some((index, word)) = rest.next() {
            if let Some(letters) = word.strip_prefix('-') {
                if letters.ends_with(|letter| SSH_VALUES.contains(letter)) {
                    rest.next();
                }
                continue;
            }
            let host = word.rsplit('@').next().unwrap_or_default();
            let script = arguments[index + 1..].join(" ");
            let inner = Self::parse_script(&script, depth);
            return Self {
                host: Some(host.to_owned()),
                enters: if script.is_empty() {
                    Some(Place::Node)
                } else {
                    inner.enters
                },
                ..inner
            };
        }
        Self::unknown()
    }

    /// Parses `nsenter -t PID -n COMMAND`. The process 1 is in the namespace of the node. Another
    /// process may be in the namespace of the node, too.
    fn parse_nsenter(arguments: &[&str], depth: usize) -> Self {
        let mut has_net = false;
        let mut net_path = None;
        let mut target = None;
        let mut inner: &[&str] = &[];
        let mut rest = arguments.iter().enumerate();
        while let Some((index, word)) = rest.next() {
            match *word {
                "--" => {
                    inner = &arguments[index + 1..];
                    break;
                }
                "-t" | "--target" => target = rest.next().map(|(_, pid)| *pid),
                "-S" | "-G" | "--setuid" | "--setgid" => drop(rest.next()),
                "--net" | "--all" => has_net = true,
                word if word.starts_with("--net=") => net_path = word.strip_prefix("--net="),
                word if word.starts_with("--target=") => target = word.strip_prefix("--target="),
                word if word.starts_with("--") => {}
                word if word.starts_with("-t") => target = word.strip_prefix("-t"),
                word if word.starts_with("-n") && word.contains('/') => {
                    net_path = word.get(2..).map(|path| path.trim_start_matches('='));
                }
                word if word.starts_with('-') => has_net |= word.contains(['n', 'a']),
                _ => {
                    inner = &arguments[index..];
                    break;
                }
            }
        }
        let place = match (net_path, target) {
            (Some("/proc/1/ns/net"), _) | (None, Some("1")) => Place::Node,
            (Some(path), _) if path.contains("/netns/") => Place::Elsewhere,
            (Some(_), _) => Place::Unknown,
            (None, _) if has_net => Place::Unknown,
            (None, _) => Place::Node,
        };
        Self::parse_inside(inner, place, depth)
    }

    /// Parses a command inside a namespace. Without a command, a shell starts.
    pub(super) fn parse_inside(words: &[&str], place: Place, depth: usize) -> Self {
        let command = Self::parse_words(words, depth + 1);
        let enters = command.enters.or_else(|| words.is_empty().then_some(place));
        Self {
            place: place.max(command.place),
            enters: enters.map(|inner| inner.max(place)),
            ..command
        }
    }

    /// Parses `kubectl exec POD -- COMMAND`, `docker run IMAGE COMMAND` and similar commands. A pod
    /// may be on the network of its node. Debug pods of nodes and pods of kube-proxy always are.
    fn parse_exec(name: &str, arguments: &[&str], depth: usize) -> Self {
        let verb = arguments.iter().find(|word| RUN_VERBS.contains(word));
        let verb = match (verb, name) {
            (Some(verb), _) => verb,
            (None, "lxc-attach" | "systemd-nspawn" | "kubectl-node_shell") => "exec",
            // Lists of containers and objects of the cluster are not state of the node's network.
            (None, _) => {
                return Self::silent();
            }
        };
        let has = |part: &str| arguments.iter().any(|word| word.contains(part));
        let network = arguments
            .windows(2)
            .any(|pair| matches!(pair[0], "--net" | "--network") && pair[1] == "host");
        let is_on_node = network
            || has("--net=host")
            || has("--network=host")
            || has("--net-host")
            || has("hostNetwork")
            || has("kube-proxy")
            || verb.starts_with("node")
            || name == "kubectl-node_shell"
            || (verb == "debug" && has("node/"));
        let is_new = verb == "run" && !matches!(name, "kubectl" | "oc" | "k");
        let shares = has("container:") || has("--pod");
        let place = match (is_on_node, is_new && !shares) {
            (true, _) => Place::Node,
            (false, true) => Place::Elsewhere,
            (false, false) => Place::Unknown,
        };
        let inner = inner_words(arguments, depth);
        let has_terminal = arguments
            .iter()
            .any(|word| has_short_option(word, 't') || *word == "--tty");
        let starts_shell = matches!(verb, "debug" | "rsh" | "shell" | "attach" | "console")
            || verb.starts_with("node")
            || has_terminal;
        if inner.is_empty() && !starts_shell {
            return Self {
                place,
                ..Self::unknown()
            };
        }
        Self::parse_inside(inner, place, depth)
    }
}

/// Returns the command inside the arguments: after `--`, or the first words that are a known
/// command or a shell. Empty if there is none.
fn inner_words<'a, 'w>(arguments: &'a [&'w str], depth: usize) -> &'a [&'w str] {
    if let Some(index) = arguments.iter().position(|word| *word == "--") {
        return &arguments[index + 1..];
    }
    if depth > MAX_SEARCHES {
        return &[];
    }
    let mut starts = (0..arguments.len().min(MAX_WORDS)).map(|index| &arguments[index..]);
    let known = starts.find(|words| {
        let command = Command::parse_words(words, depth + 1);
        let is_known = command.content.is_some() || command.is_unread();
        is_known || command.enters.is_some()
    });
    known.unwrap_or_default()
}

/// Whether a word is short options with a letter: `-it`.
fn has_short_option(word: &str, letter: char) -> bool {
    let letters = word.strip_prefix('-');
    letters.is_some_and(|letters| !letters.starts_with('-') && letters.contains(letter))
}
