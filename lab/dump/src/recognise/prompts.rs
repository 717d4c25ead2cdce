//! Recognises prompts of shells, and headings of collectors, with the command after them.

/// Prompt with a command, or a heading that names a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prompt<'l> {
    /// Host that the prompt names. `None` if the prompt names none.
    pub(super) host: Option<&'l str>,
    /// Text before the command, with the sign.
    pub(super) prefix: &'l str,
    /// Command line. Empty if nothing was typed.
    pub(super) command: &'l str,
    /// Whether only a known command shows that the line is a prompt: `# ip route`.
    pub(super) is_bare: bool,
}

/// Last characters of a prompt.
const SIGNS: [char; 4] = ['#', '$', '%', '>'];

/// Marks around the command in a heading of a collector (amazon-eks-ami v20260724,
/// `log-collector-script/linux/eks-log-collector.sh`, `get_networking_info`).
const HEADINGS: [(&str, &str); 3] = [
    ("*** Output of ", " ***"),
    ("=== ", " ==="),
    ("--- ", " ---"),
];

/// Returns the prompt in a line. `None` for other lines.
pub(super) fn parse(line: &str) -> Option<Prompt<'_>> {
    let line = line.trim_end();
    for (begin, end) in HEADINGS {
        let inside = line
            .strip_prefix(begin)
            .and_then(|rest| rest.strip_suffix(end));
        if let Some(command) = inside {
            return Some(Prompt {
                host: None,
                prefix: begin,
                command: command.trim(),
                is_bare: true,
            });
        }
    }
    // `set -x` prints a plus sign.
    let traced = line.trim_start_matches('+');
    if traced.len() < line.len() && (traced.is_empty() || traced.starts_with(' ')) {
        return Some(Prompt {
            host: None,
            prefix: "+",
            command: traced.trim_start(),
            is_bare: true,
        });
    }
    let is_end = |index: usize| {
        let rest = &line[index + 1..];
        rest.is_empty() || rest.starts_with(' ')
    };
    let signs = line
        .char_indices()
        .filter(|(index, sign)| SIGNS.contains(sign) && is_end(*index));
    for (index, sign) in signs {
        let (prefix, command) = (&line[..index], line[index + 1..].trim_start());
        if prefix.is_empty() {
            return (sign != '%').then_some(Prompt {
                host: None,
                prefix: &line[..=index],
                command,
                is_bare: true,
            });
        }
        if let Some(host) = prompt_host(prefix).filter(|_| sign != '>') {
            return Some(Prompt {
                host,
                prefix: &line[..=index],
                command,
                is_bare: false,
            });
        }
    }
    None
}

/// Returns the host in the text before the sign. The outer `None` means that the text is no prompt.
#[expect(clippy::option_option, reason = "not every prompt names a host")]
fn prompt_host(prefix: &str) -> Option<Option<&str>> {
    // `[root@node-1 ~]`
    if let Some(inside) = prefix
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let (_, host) = inside.split_once('@')?;
        return Some(host.split([' ', ':']).next());
    }
    let trimmed = prefix.trim_end();
    if trimmed.contains(|c: char| c.is_ascii_whitespace() || matches!(c, '"' | '\'' | '=' | ',')) {
        return None;
    }
    // `root@node-1:/`
    if let Some((_, host)) = trimmed.split_once('@') {
        return Some(host.split(':').next());
    }
    // `sh-5.1`
    let is_version = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    let shell = ["sh-", "bash-"]
        .iter()
        .find_map(|shell| trimmed.strip_prefix(shell));
    if shell.is_some_and(is_version) {
        return Some(None);
    }
    let has_space = prefix.len() > trimmed.len();
    // `/ # ` of busybox.
    if trimmed.starts_with(['/', '~']) && has_space {
        return Some(None);
    }
    // `node-1:~ # ` of SUSE.
    let (host, path) = trimmed.split_once(':')?;
    let is_host = !host.is_empty()
        && host
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    (is_host && path.starts_with(['/', '~'])).then_some(Some(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_of_each_shell_is_recognised() {
        for (line, host, command) in [
            ("[root@node-1 ~]# ip addr", Some("node-1"), "ip addr"),
            (
                "root@node-1:/# iptables-save ",
                Some("node-1"),
                "iptables-save",
            ),
            (
                "ubuntu@ip-10-0-0-1:~$ sudo nft list ruleset",
                Some("ip-10-0-0-1"),
                "sudo nft list ruleset",
            ),
            ("sh-5.1# chroot /host", None, "chroot /host"),
            ("bash-4.4$ exit", None, "exit"),
            ("/ # ip route", None, "ip route"),
            ("~ # ip route", None, "ip route"),
            ("node-1:~ # ip route", Some("node-1"), "ip route"),
            ("root@node-1:/#", Some("node-1"), ""),
            ("# ip rule", None, "ip rule"),
            ("$ sysctl -a", None, "sysctl -a"),
            ("> oc get nodes", None, "oc get nodes"),
            ("+ ip addr", None, "ip addr"),
            ("*** Output of conntrack -S *** ", None, "conntrack -S"),
        ] {
            let prompt = parse(line).unwrap();
            assert_eq!((prompt.host, prompt.command), (host, command), "{line}");
        }
    }

    #[test]
    fn prompt_in_output_is_not_recognised() {
        for line in [
            "-A X -m comment --comment \"root@a:/# ls\" -j Y",
            ":KUBE-SVC - [0:0]",
            "kernel.core_pattern = |/bin/a %P %u",
            "2: eth0@if3: <UP> mtu 1500",
            "10.0.0.0/8 dev eth0",
            "\tip daddr 10.0.0.1 accept # handle 5",
            "table ip nat { # handle 5",
            "net.ipv4.tcp_allowed_congestion_control = a b # c",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
