//! Tests `scripts/collect-node` on nodes of labs: under each supported shell, with and without
//! optional programs, and with its options.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use svclab_dump::NodeDump;
use svclab_dump::folder::DumpFiles;
use svclab_ruleset::tool::Format;

use crate::running::Labs;
use crate::support::{LAB, project, stderr, svclab};

pub const SCRIPT: &str = include_str!("../../../scripts/collect-node");

/// Programs that can be `sh` on the supported nodes.
const SHELLS: [&[&str]; 3] = [&["dash"], &["busybox", "sh"], &["bash", "--posix"]];

/// Runs the script on node-1, read from a pipe as over ssh.
fn collect(labs: &Labs, shell: &[&str], path: Option<&str>, arguments: &[&str]) -> Output {
    let set = path.map(|path| format!("PATH={path}"));
    let env = set.as_deref().map_or(vec![], |set| vec!["env", set]);
    let exec = ["exec", "node-1", "--"];
    let command = [&exec[..], &env, shell, &["-s", "--", "-o", "-"], arguments].concat();
    let mut child = labs
        .runtime
        .svclab(&command)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let feeding = std::thread::spawn(move || stdin.write_all(SCRIPT.as_bytes()));
    let output = child.wait_with_output().expect("the command ends");
    feeding
        .join()
        .expect("the thread ends")
        .expect("the script reads its input");
    output
}

/// Unpacked files of a bundle.
pub struct Bundle {
    _directory: tempfile::TempDir,
    directory_path: PathBuf,
}

impl Bundle {
    fn from_output(output: &Output) -> Self {
        assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
        Self::unpack(&output.stdout)
    }

    pub fn unpack(tarball: &[u8]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("tarball");
        std::fs::write(&file, tarball).expect("the file can be written");
        let target = directory.path().join("into");
        std::fs::create_dir(&target).expect("a directory");
        let unpacked = Command::new("tar")
            .args(["-xf".as_ref(), file.as_os_str(), "-C".as_ref()])
            .arg(&target)
            .status()
            .expect("tar");
        assert!(unpacked.success());
        let mut inside = std::fs::read_dir(&target).expect("a directory");
        let folder = inside.next().expect("one directory").expect("an entry");
        assert!(inside.next().is_none(), "more than one directory");
        Self {
            _directory: directory,
            directory_path: folder.path(),
        }
    }

    fn text(&self, name: &str) -> String {
        let path = self.directory_path.join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn has(&self, name: &str) -> bool {
        self.directory_path.join(name).exists()
    }

    /// Returns the texts of all files by name.
    pub fn texts(&self) -> BTreeMap<String, String> {
        let entries = std::fs::read_dir(&self.directory_path).expect("a directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names
            .map(|name| name.into_string().expect("a name"))
            .map(|name| (name.clone(), self.text(&name)))
            .collect()
    }

    /// Parses the files as svclab does, and asserts that no diagnostics occur.
    fn dump(&self) -> NodeDump {
        let read = NodeDump::parse(DumpFiles::read(&self.directory_path).expect("a dump").files);
        assert!(read.diagnostics.is_empty(), "{:?}", read.diagnostics);
        read.dump
    }
}

/// Returns the lines without comments, which contain times, and without counters.
fn stable_lines(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let chain = |line: &str| line.split(" [").next().unwrap_or_default().to_owned();
    lines.map(chain).collect()
}

#[test]
fn collect_node_every_shell_writes_complete_dump() {
    let labs = Labs::with_running_case();
    let rules = labs
        .runtime
        .run(&["exec", "node-1", "--", "iptables-nft-save"]);
    let rules = stable_lines(&String::from_utf8_lossy(&rules.stdout));
    assert!(rules.iter().any(|line| line.contains("KUBE-SEP-")));
    for shell in SHELLS {
        let collected = Bundle::from_output(&collect(&labs, shell, None, &[]));
        assert_eq!(
            stable_lines(&collected.text("iptables-nft-save")),
            rules,
            "{shell:?}"
        );
        let dump = collected.dump();
        for format in [
            Format::Links,
            Format::Sets,
            Format::Nft,
            Format::Sysctls,
            Format::RoutingRules(svclab_ruleset::Family::V4),
            Format::Routes(svclab_ruleset::Family::V4),
        ] {
            assert!(dump.has(format), "{shell:?}: {format}");
        }
        let links = dump.links.expect("interfaces");
        let addresses = links["eth0"].addresses.iter();
        let addresses: Vec<String> = addresses
            .map(|address| address.network.to_string())
            .collect();
        assert!(
            addresses
                .iter()
                .any(|address| address.starts_with("192.168.50.11/")),
            "{shell:?}"
        );
        let settings = dump.sysctls.expect("settings");
        assert_eq!(
            &*settings["net.ipv4.ip_forward"].values[0], "1",
            "{shell:?}"
        );
        assert!(settings.keys().all(|key| !key.contains("fastopen_key")));
        let conntrack = "net.netfilter.nf_conntrack_tcp_timeout_established";
        assert!(settings.contains_key(conntrack), "{shell:?}");
        assert!(
            collected.text("tc-qdisc").contains("dev eth0 root"),
            "{shell:?}"
        );
        assert!(!collected.has("conntrack-L"), "{shell:?}");
        let versions = collected.text("versions.txt");
        for version_line in ["kernel: Linux ", "iptables: iptables v", "(nf_tables)"] {
            assert!(versions.contains(version_line), "{shell:?}: {versions}");
        }
        let missing = collected.text("missing.txt");
        assert!(
            missing.contains("kube-proxy-cmdline: no kube-proxy is in /proc"),
            "{missing}"
        );
    }
}

/// Creates a directory in the lab with links to its programs, except the lacking ones.
fn path_without_programs(labs: &Labs, lacking: &[&str]) -> String {
    let script = format!(
        "cd $(mktemp -d) && ln -sf /usr/sbin/* /usr/bin/* . && rm -f {} && pwd",
        lacking.join(" ")
    );
    let exec = ["exec", "node-1", "--", "sh", "-c", &script];
    let output = labs.runtime.run(&exec);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn collect_node_missing_programs_are_listed() {
    let lacking = [
        "ipset",
        "nft",
        "ipvsadm",
        "conntrack",
        "sysctl",
        "gzip",
        "bridge",
        "tc",
    ];
    let labs = Labs::with_running_case();
    let path = path_without_programs(&labs, &lacking);
    for shell in SHELLS {
        let output = collect(&labs, shell, Some(&path), &[]);
        let collected = Bundle::from_output(&output);
        let missing = collected.text("missing.txt");
        for (file, program) in [
            ("nft", "nft"),
            ("ipset-save", "ipset"),
            ("bridge-fdb", "bridge"),
            ("tc-qdisc", "tc"),
        ] {
            let line = format!("{file}: {program} is not installed\n");
            assert!(missing.contains(&line), "{shell:?}: {missing}");
            assert!(!collected.has(file), "{shell:?}: {file}");
        }
        // The script also reads sysctls without the `sysctl` program.
        let dump = collected.dump();
        let settings = dump.sysctls.expect("settings");
        assert_eq!(&*settings["net.ipv4.conf.eth0.forwarding"].values[0], "1");
        assert!(collected.has("iptables-nft-save") && collected.has("ip-route"));
        assert!(
            stderr(&output).contains("gzip is not installed"),
            "{shell:?}"
        );
    }
}

/// Runs commands on node-1 of a lab.
fn run_on_node(labs: &Labs, script: &str) {
    let exec = ["exec", "node-1", "--", "sh", "-ec", script];
    let output = labs.runtime.run(&exec);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// Classes and filters of a shaping interface, and of one that mirrors packets.
const TRAFFIC_CONTROL: &str = "\
tc qdisc replace dev eth0 root handle 1: htb default 10
tc class add dev eth0 parent 1: classid 1:10 htb rate 1mbit
tc filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst 192.168.50.77/32 flowid 1:10
tc qdisc add dev eth0 clsact
tc filter add dev eth0 ingress protocol ip prio 1 u32 match ip src 192.168.50.77/32 action mirred egress mirror dev lo
";

#[test]
fn collect_node_lists_classes_and_filters() {
    let labs = Labs::with_running_case();
    run_on_node(&labs, TRAFFIC_CONTROL);
    for shell in SHELLS {
        let collected = Bundle::from_output(&collect(&labs, shell, None, &[]));
        let qdiscs = collected.text("tc-qdisc");
        assert!(qdiscs.contains("qdisc htb 1: dev eth0 root"), "{qdiscs}");
        let classes = collected.text("tc-class");
        assert!(
            classes.starts_with("# tc class show dev eth0 parent 1:\nclass htb 1:10 "),
            "{shell:?}: {classes}"
        );
        let filters = collected.text("tc-filter");
        for line in [
            "# tc filter show dev eth0 ingress\n",
            "# tc filter show dev eth0 parent 1:\n",
            " match c0a8324d/ffffffff at 12\n",
            " match c0a8324d/ffffffff at 16\n",
        ] {
            assert!(filters.contains(line), "{shell:?}: {line}: {filters}");
        }
        let redacted = Bundle::from_output(&collect(&labs, shell, None, &["--redact"]));
        let filters = redacted.text("tc-filter");
        assert!(!filters.contains("c0a8324d"), "{shell:?}: {filters}");
        assert!(filters.contains(" fh 800::800 "), "{shell:?}: {filters}");
    }
}

#[test]
fn collect_node_lists_ipsec_policies() {
    let labs = Labs::with_running_case();
    run_on_node(
        &labs,
        "ip xfrm policy add dst 192.168.50.77/32 dir out action block",
    );
    for shell in SHELLS {
        let collected = Bundle::from_output(&collect(&labs, shell, None, &[]));
        let policies = collected.dump().ipsec_policies.expect("policies");
        assert_eq!(policies.len(), 1, "{shell:?}: {policies:?}");
    }
}

#[test]
fn collect_node_conntrack_lists_first_connections() {
    let labs = Labs::with_running_case();
    let sends = "for port in 1 2 3; do echo > /dev/udp/192.168.50.11/$port; done";
    let exec = ["exec", "node-1", "--", "bash", "-c", sends];
    assert_eq!(labs.runtime.run(&exec).status.code(), Some(0));
    for shell in SHELLS {
        let listed = |count: &str| {
            let output = collect(&labs, shell, None, &["--conntrack", count]);
            let collected = Bundle::from_output(&output);
            let lines = collected.text("conntrack-L");
            (lines, collected.text("missing.txt"))
        };
        let (lines, missing) = listed("2");
        assert_eq!(lines.lines().count(), 2, "{shell:?}: {lines}");
        assert!(lines.contains("src=192.168.50.11 "), "{shell:?}: {lines}");
        let limit = "conntrack-L: only the first 2 ipv4 connections are listed\n";
        assert!(missing.contains(limit), "{shell:?}: {missing}");
        let (lines, missing) = listed("1000");
        assert!(lines.lines().count() > 2, "{shell:?}: {lines}");
        assert!(!missing.contains("conntrack-L"), "{shell:?}: {missing}");
    }
}

#[test]
fn collect_node_unwritable_output_leaves_no_partial_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = project().join("scripts/collect-node");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&script);
        command.current_dir(directory.path()).args(arguments);
        command.output().expect("the script starts")
    };
    let nowhere = directory.path().join("nowhere/node.tar.gz");
    let output = run(&["-o", &nowhere.display().to_string()]);
    assert_eq!(output.status.code(), Some(3));
    let message = stderr(&output);
    assert!(
        message.contains("nowhere/node.tar.gz; give another file with -o"),
        "{message}"
    );
    let left = std::fs::read_dir(directory.path())
        .expect("a directory")
        .count();
    assert_eq!(left, 0);
    let output = run(&["-o", "node.tar.gz"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let names: Vec<_> = std::fs::read_dir(directory.path())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, ["node.tar.gz"]);
    let tarball = std::fs::read(directory.path().join("node.tar.gz")).expect("the tarball exists");
    assert!(Bundle::unpack(&tarball).has("versions.txt"));
}

#[test]
fn collect_node_invalid_arguments_print_usage() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(project().join("scripts/collect-node"));
        let output = command.args(arguments).output().expect("the script starts");
        let text = format!(
            "{}{}ends with {:?}",
            String::from_utf8_lossy(&output.stdout),
            stderr(&output),
            output.status.code()
        );
        text
    };
    let outputs = [
        run(&["--help"]),
        run(&["--reduct"]),
        run(&["-o"]),
        run(&["--conntrack"]),
        run(&["--conntrack", "all"]),
        run(&["--redact-key"]),
    ];
    insta::assert_snapshot!(outputs.join("\n"));
}

/// Starts a lab whose names and addresses `--redact` must replace.
fn labs_with_private_names() -> Labs {
    let text = LAB
        .replace("default", "shop")
        .replace("web", "cart")
        .replace("status: {podIP: 10.244.1.9}", "status: {podIP: 10.244.1.9, podIPs: [{ip: 10.244.1.9}, {ip: \"fd10:244:1::9\"}]}")
        .replace("status: {podIP: 10.244.1.10}", "status: {podIP: 10.244.1.10, podIPs: [{ip: 10.244.1.10}, {ip: \"fd10:244:1::10\"}]}")
        .replace("spec: {podCIDR: 10.244.1.0/24}", "spec: {podCIDR: 10.244.1.0/24, podCIDRs: [10.244.1.0/24, \"fd10:244:1::/64\"]}")
        .replace("{type: InternalIP, address: 192.168.50.11}", "{type: InternalIP, address: 192.168.50.11}, {type: InternalIP, address: \"fd00:50::11\"}");
    let labs = Labs::from_text(&text);
    labs.runtime.up(&labs.case("Local"));
    labs
}

fn split_addresses(text: &str) -> (Vec<IpAddr>, String) {
    let mut found = Vec::new();
    let mut rest = String::new();
    let within = |c: char| c.is_ascii_hexdigit() || ":.".contains(c);
    let mut position = 0;
    while let Some(next) = text[position..].chars().next() {
        let end = text[position..]
            .find(|c| !within(c))
            .map_or(text.len(), |end| position + end);
        let word = &text[position..end];
        let before = text[..position].chars().next_back();
        let alone = before.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_');
        // An IPv4 address may be followed by a port.
        let (address, port) = match word.parse::<IpAddr>() {
            Ok(address) => (Some(address), ""),
            Err(_) => match word.split_once(':') {
                Some((address, port)) => (address.parse().ok(), port),
                None => (None, ""),
            },
        };
        match address.filter(|_| alone) {
            Some(address) => {
                found.push(address);
                rest.push_str("ADDRESS ");
                rest.push_str(port);
                position = end;
            }
            None if end > position => {
                rest.push_str(word);
                position = end;
            }
            None => {
                rest.push(next);
                position += next.len_utf8();
            }
        }
    }
    (found, rest)
}

fn bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(four) => (u128::from(u32::from(four)) << 96, 32),
        IpAddr::V6(six) => (u128::from(six), 128),
    }
}

/// Returns the number of common leading bits of two addresses of one family.
fn common_prefix_length(first: IpAddr, second: IpAddr) -> u32 {
    let ((one, size), (other, _)) = (bits(first), bits(second));
    (one ^ other).leading_zeros().min(size)
}

fn is_kept(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => {
            four.is_loopback()
                || four.octets()[0] == 0
                || four.is_link_local()
                || four.octets()[0] >= 224
        }
        IpAddr::V6(six) => {
            six == Ipv6Addr::UNSPECIFIED || six == Ipv6Addr::LOCALHOST || six.is_multicast()
        }
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.is_private(),
        IpAddr::V6(six) => six.is_unique_local(),
    }
}

/// Returns the lines without neighbours that the kernel creates when it sends to a group.
fn without_kernel_neighbours(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.contains("NOARP"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn collect_node_redact_keeps_prefixes_and_renames() {
    let labs = labs_with_private_names();
    let plain = Bundle::from_output(&collect(&labs, &["dash"], None, &[]));
    let plain_texts = plain.texts();
    assert!(plain_texts["iptables-nft-save"].contains("shop/cart"));
    for shell in SHELLS {
        let collected = Bundle::from_output(&collect(&labs, shell, None, &["--redact"]));
        collected.dump();
        let texts = collected.texts();
        assert!(texts.keys().eq(plain_texts.keys()), "{shell:?}");
        let mut new_addresses: BTreeMap<IpAddr, IpAddr> = BTreeMap::new();
        for name in [
            "ip-addr",
            "ip-route",
            "ip-6-route",
            "iptables-nft-save",
            "ip6tables-nft-save",
            "nft",
            "ip-neigh",
        ] {
            let (before, rest) = split_addresses(&without_kernel_neighbours(&plain_texts[name]));
            let (after, rest_after) = split_addresses(&without_kernel_neighbours(&texts[name]));
            assert_eq!(
                before.len(),
                after.len(),
                "{shell:?} {name}: {rest}\n{rest_after}"
            );
            for (before, after) in before.into_iter().zip(after) {
                let known = *new_addresses.entry(before).or_insert(after);
                // A network is printed as an address with zeros behind its prefix length.
                let is_network_address =
                    known != after && common_prefix_length(known, after) < bits(after).1;
                assert!(
                    !is_network_address,
                    "{shell:?} {name}: {before} became {known} and {after}"
                );
            }
        }
        assert!(new_addresses.len() > 10, "{new_addresses:?}");
        let hosts = new_addresses
            .iter()
            .filter(|(before, _)| !is_network(**before));
        let hosts: Vec<(IpAddr, IpAddr)> = hosts.map(|(one, other)| (*one, *other)).collect();
        for (before, after) in &hosts {
            assert_eq!(
                before == after,
                is_kept(*before),
                "{shell:?}: {before} {after}"
            );
            assert_eq!(
                is_private(*before),
                is_private(*after),
                "{before} became {after}"
            );
            for (other, other_after) in &hosts {
                if before.is_ipv4() == other.is_ipv4() {
                    let kept = common_prefix_length(*before, *other)
                        == common_prefix_length(*after, *other_after);
                    assert!(
                        kept,
                        "{shell:?}: {before} {other} became {after} {other_after}"
                    );
                }
            }
        }
        for (name, text) in &texts {
            for word in ["shop", "cart"] {
                assert!(!text.contains(word), "{shell:?} {name}: {word}");
            }
        }
        let rules = &texts["iptables-nft-save"];
        // A service has the same new name everywhere.
        let named = rules.split("--comment \"namespace-").skip(1);
        let named: BTreeSet<&str> = named
            .filter_map(|rest| rest.split([' ', '"']).next())
            .collect();
        assert_eq!(named.len(), 1, "{rules}");
        // Chains and ports keep their names and numbers.
        let chain = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| line.starts_with(":KUBE-S"));
            lines
                .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
                .collect()
        };
        assert_eq!(chain(rules), chain(&plain_texts["iptables-nft-save"]));
        assert!(
            rules.contains("--dport 80 ") && rules.contains(":8080"),
            "{rules}"
        );
    }
}

/// Whether an address is printed as a network. The script does not change the zero bits of such an
/// address.
fn is_network(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four == Ipv4Addr::UNSPECIFIED || four.octets()[2..] == [0, 0],
        IpAddr::V6(six) => six.segments()[4..] == [0, 0, 0, 0],
    }
}

#[test]
fn collect_node_is_printed_unchanged() {
    for in_runner in [false, true] {
        let mut command = svclab();
        command.arg("collect-node");
        if in_runner {
            command.env("GITHUB_ACTIONS", "true");
        }
        let output = command.output().expect("the command starts");
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(output.stdout == SCRIPT.as_bytes(), "the text differs");
    }
}
