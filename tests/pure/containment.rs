//! Lists every sentence of the chapter "Containment" of the book with the tests that check it. A
//! new sentence and a renamed test both make this test fail.

use std::fs;

/// Tests that several sentences share.
const PROGRAM: &str = "tests/escape/main.rs program_of_a_lab_reaches_nothing";
const INTRUDER: &str = "tests/escape/main.rs nothing_gets_out";
const FOR_IPVS: &str =
    "tests/escape/host_ipvs/trials.rs agent_for_ipvs_escape_attempts_are_refused";
const HOST_WITH_IPVS: &str = "tests/escape/host_ipvs/trials.rs host_with_ipvs_runs_labs_with_ipvs";
const LEFT: &str = "tests/command/failure/certified.rs certificate_objects_left_behind_are_listed";
const BOUNDED: &str = "tests/memory/bounded.rs front_end_memory";
const QEMU_OF_ROOT: &str = "tests/guest/confined/mod.rs qemu_started_by_root_is_confined";
const QEMU_OF_USER: &str = "tests/guest/confined/mod.rs qemu_started_by_ordinary_user_is_confined";
const IN_ITS_PLACE: &str = "tests/guest/confined/mod.rs program_in_place_of_qemu_reaches_nothing";
const UNCONFINED: &str =
    "tests/guest/confined/mod.rs run_without_namespaces_passes_in_unprivileged_guest";

/// The sentences of the chapter in order, each with its tests as `FILE NAME`.
const SENTENCES: &[(&str, &[&str])] = &[
    (
        "Every sentence of this chapter has a test; `tests/pure/containment.rs` lists them.",
        &["tests/pure/containment.rs containment_every_sentence_has_a_test"],
    ),
    (
        "svclab does not change the host's network.",
        &["tests/command/failure/untouched.rs run_labs_leaves_host_network_unchanged"],
    ),
    (
        "`svclab run --certify` compares the state of the host before and after a run:",
        &["tests/command/failure/certified.rs certificate_of_clean_run_is_unchanged_for_each_user"],
    ),
    (
        "It compares interfaces, addresses, routes, routing rules, permanent neighbours, nftables, both kinds of iptables, ipsets and IPVS.",
        &[
            LEFT,
            "lab/runner/src/certify/lines.rs ipvs_connection_counts_are_ignored",
        ],
    ),
    (
        "It also compares `/proc/sys`, modules, mounts, the names in `/run` and the processes that the run started.",
        &[
            LEFT,
            "lab/runner/src/certify/lines.rs modules_and_mounts_numbers_are_ignored",
        ],
    ),
    (
        "svclab prints each difference and exits with code 1.",
        &[LEFT],
    ),
    (
        "The results contain this certificate in every format, and in JSON a digest of each state.",
        &["lab/report/src/text/certificate.rs certificate_is_in_every_format"],
    ),
    (
        "Counters, leases, neighbour states and set members with a timeout are not compared.",
        &[
            "lab/runner/src/certify/lines.rs addresses_leases_are_ignored",
            "lab/runner/src/certify/lines.rs nftables_counters_and_timed_members_are_ignored",
            LEFT,
            "lab/runner/src/certify/lines.rs ipset_timed_members_are_ignored",
        ],
    ),
    (
        "For a user without root, the certificate lists what svclab cannot read.",
        &["tests/command/failure/certified.rs certificate_of_clean_run_is_unchanged_for_each_user"],
    ),
    (
        "The certificate also shows changes by other programs.",
        &[LEFT],
    ),
    (
        "An interrupted run removes its labs and compares the state, too.",
        &[
            "tests/command/failure/interrupted.rs run_ctrl_c_ends_all_processes",
            "tests/command/failure/interrupted.rs run_interrupted_has_certificate",
        ],
    ),
    (
        "The exit code of an interrupted run is 1 if something is left, otherwise 130.",
        &[
            "tests/command/failure/certified.rs certificate_of_interrupted_run_lists_left_objects",
            "tests/command/failure/interrupted.rs run_interrupted_has_certificate",
        ],
    ),
    (
        "A second Ctrl-C does not wait for the certificate.",
        &["tests/command/failure/certified.rs run_second_interrupt_skips_certificate"],
    ),
    (
        "An **agent** is a process that builds labs and sends evidence to svclab:",
        &["tests/host/agent_pipe/mod.rs agent_small_plan_returns_complete_evidence"],
    ),
    (
        "Namespaces of labs have no names in `/run/netns`.",
        &[INTRUDER],
    ),
    (
        "An agent has its own PID, mount, user, network, IPC, UTS and cgroup namespaces.",
        &[INTRUDER],
    ),
    (
        "An agent that root starts runs as an unprivileged user of the host.",
        &[INTRUDER],
    ),
    (
        "An agent for IPVS has no user namespace and keeps 8 of root's capabilities.",
        &[FOR_IPVS, HOST_WITH_IPVS],
    ),
    (
        "A system call filter denies an agent for IPVS mounts, modules, other users and new namespaces except network namespaces.",
        &[
            FOR_IPVS,
            "lab/agent/src/sandbox/filter.rs agent_filter_other_namespaces_and_users_are_refused",
        ],
    ),
    (
        "When an agent ends, for any reason, the kernel removes everything of its labs.",
        &[
            "tests/host/agent_pipe/mod.rs agent_killed_leaves_no_processes",
            "tests/host/agent_pipe/mod.rs agent_input_closed_exits_and_cleans_up",
            "tests/command/failure/killed.rs run_process_killed_leaves_nothing_behind",
        ],
    ),
    (
        "The root directory of an agent is read-only and contains the system's programs.",
        &[INTRUDER],
    ),
    (
        "An agent has nothing of the caller's environment, files or open descriptors.",
        &[INTRUDER],
    ),
    (
        "Cases of different lab files never share an agent.",
        &["tests/escape/beside.rs labs_of_different_files_share_no_agent"],
    ),
    (
        "Each kind of message from an agent has a maximum size, which is 128 MiB for the evidence of a case.",
        &[
            "lab/model/src/protocol/frame.rs read_event_too_large_for_kind_returns_error",
            "lab/model/src/protocol/frame.rs event_framing_above_128_mib_is_rejected",
        ],
    ),
    (
        "svclab ends an agent that exceeds this size or sends an unrequested message, and the agent's cases are errors.",
        &[
            BOUNDED,
            "tests/pure/fake_agent.rs evidence_without_a_connection_does_not_pass",
        ],
    ),
    (
        "Messages of an agent use at most 768 MiB of svclab's memory.",
        &[BOUNDED],
    ),
    (
        "Programs of a lab (`byHand`, `exec`, `shell`, a real kube-proxy, the loaders of rules) cannot reach the agent, on the host or in a guest:",
        &[
            PROGRAM,
            HOST_WITH_IPVS,
            "tests/escape/beside.rs honest_lab_fails_beside_a_hostile_one",
        ],
    ),
    (
        "Programs run in a PID namespace with its own `/proc`, in which the agent has no PID.",
        &[PROGRAM],
    ),
    (
        "Programs have `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_NET_BIND_SERVICE` and no other capability.",
        &[PROGRAM],
    ),
    ("The programs of each lab have their own user.", &[PROGRAM]),
    (
        "Without root, they have the caller's user, and each lab has its own PID namespace.",
        &[PROGRAM],
    ),
    (
        "A filter denies `ptrace`, `pidfd_getfd`, `process_vm_readv`, `process_vm_writev`, new and other namespaces, `io_uring` and system calls newer than Linux 6.12.",
        &[
            PROGRAM,
            "lab/agent/src/sandbox/filter.rs program_filter_forbidden_calls_are_refused",
        ],
    ),
    ("Programs find no keys of the caller.", &[PROGRAM]),
    (
        "A probe accepts replies only from servers of its lab, so no program can reply for a server.",
        &["tests/escape/beside.rs command_answer_does_not_count_as_server_answer"],
    ),
    (
        "No program has a group of the host's root, so with an agent for IPVS `iptables-legacy-save` prints nothing without `-t TABLE`.",
        &[PROGRAM],
    ),
    (
        "QEMU runs as an unprivileged user:",
        &[QEMU_OF_ROOT, QEMU_OF_USER, UNCONFINED],
    ),
    (
        "If root starts QEMU, it runs as a user that no account has.",
        &[QEMU_OF_ROOT],
    ),
    (
        "Otherwise QEMU runs as the caller, in a user namespace without capabilities.",
        &[QEMU_OF_USER],
    ),
    (
        "QEMU has its own PID, mount, network, IPC, UTS and cgroup namespaces.",
        &[QEMU_OF_ROOT, QEMU_OF_USER],
    ),
    (
        "Its root directory is read-only and contains the system's programs and libraries.",
        &[QEMU_OF_ROOT, QEMU_OF_USER],
    ),
    (
        "A system call filter applies in addition to QEMU's own sandbox.",
        &[QEMU_OF_ROOT, QEMU_OF_USER],
    ),
    (
        "QEMU has only the descriptors of its guest.",
        &[QEMU_OF_ROOT, QEMU_OF_USER, IN_ITS_PLACE],
    ),
    (
        "svclab does not start QEMU with a cache that another user owns or can write.",
        &["tests/guest/confined/mod.rs cache_of_other_user_is_refused_before_qemu_starts"],
    ),
    (
        "If a container or a kernel denies namespaces, Landlock rules replace the root directory, if the kernel has Landlock.",
        &[IN_ITS_PLACE],
    ),
    (
        "The filter then also denies sockets and signals to other processes.",
        &[IN_ITS_PLACE],
    ),
    ("`svclab doctor` lists what is denied.", &[UNCONFINED]),
    (
        "If svclab is root and cannot change QEMU's user, it does not start QEMU.",
        &["tests/guest/confined/mod.rs qemu_root_without_setuid_is_refused"],
    ),
    (
        "Memory and modules of the host:",
        &["tests/command/failure/short.rs run_in_cgroup_without_memory_names_limit"],
    ),
    (
        "If memory runs out, the kernel ends labs first, and the run reports this.",
        &[
            "tests/command/failure/short.rs run_in_cgroup_without_memory_names_limit",
            "tests/guest/alive.rs guest_out_of_memory_is_reported",
        ],
    ),
    (
        "svclab never makes the kernel load a module.",
        &[HOST_WITH_IPVS],
    ),
    (
        "A lab that needs a module that is not loaded runs in a guest.",
        &["tests/guest/start/lacking.rs run_lab_with_modules_missing_on_host_uses_guest"],
    ),
    (
        "Without a guest, this is an error with a `modprobe` command as help, and exit code 3.",
        &[HOST_WITH_IPVS],
    ),
];

fn read_text(path: &str) -> String {
    let path = svclab_test_support::root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the sentences of a chapter. Each line is a heading, a picture, a paragraph or a list
/// item.
fn sentences(chapter: &str) -> Vec<String> {
    let lines = chapter.lines().filter(|line| !line.starts_with(['#', '!']));
    let texts = lines.map(|line| line.trim_start_matches("- ").trim());
    let texts = texts.filter(|text| !text.is_empty());
    texts
        .flat_map(|text| {
            let ends = text.match_indices(". ").map(|(at, _)| at + 1);
            let ends: Vec<usize> = ends.chain([text.len()]).collect();
            let starts = std::iter::once(0).chain(ends.clone());
            starts
                .zip(ends)
                .map(|(start, end)| text[start..end].trim().to_owned())
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn containment_every_sentence_has_a_test() {
    let chapter_sentences = sentences(&read_text("docs/src/concepts/containment.md"));
    let listed: Vec<&str> = SENTENCES.iter().map(|(sentence, _)| *sentence).collect();
    assert_eq!(chapter_sentences, listed);
    for (sentence, tests) in SENTENCES {
        assert!(!tests.is_empty(), "{sentence}");
        for test in *tests {
            let (file, name) = test.split_once(' ').expect("a file and a name");
            let source = read_text(file);
            // Either a function, or the name of a test in a program with its own harness.
            let is_there = source.contains(&format!("fn {name}("))
                || source.contains(&format!("(\"{name}\""))
                || source.contains(&format!("\"{name}_{{"));
            assert!(is_there, "{file} has no test {name}, of: {sentence}");
        }
    }
}

#[test]
fn chapter_with_list_is_split_into_sentences() {
    let chapter =
        "# A\n\n![A.](a.svg)\n\nOne `a.b`. Two:\n\n- Three, v6.12.\n- Four\n\n## B\n\nFive.\n";
    assert_eq!(
        sentences(chapter),
        ["One `a.b`.", "Two:", "Three, v6.12.", "Four", "Five."]
    );
}
