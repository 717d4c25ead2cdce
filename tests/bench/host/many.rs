//! Measures hundreds of namespaces, each with a veth pair to a router and a default route. Compares
//! svclab with plain `unshare` and netlink calls on one thread, and with `ip -batch`.

use std::cell;
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use comfy_table::{Cell, CellAlignment, Table, presets};
use futures_util::TryStreamExt as _;
use nix::sched::{CloneFlags, setns, unshare};
use rtnetlink::{LinkUnspec, LinkVeth};
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use svclab_model::plan::{Link, LinkKind, Mac, Namespace, Plan, PortSettings, Route};
use svclab_runner::kernel::Agent;
use tokio::runtime::Runtime;

/// Numbers of namespaces, without the router.
const SIZES: [u16; 3] = [10, 100, 1000];

/// Number of measurements, of which the table shows the best.
const SAMPLES: usize = 3;

/// Returns the table of all measurements, which do not include the removal of the namespaces.
pub fn table(runtime: &Runtime, agent: &Agent) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "namespaces",
        "svclab",
        "each",
        "unshare and netlink",
        "svclab time",
        "ip -batch",
        "memory each",
    ]);
    for size in SIZES {
        let best = |measure: &dyn Fn() -> Duration| {
            let took = (0..SAMPLES).map(|_| measure());
            took.min().expect("a measurement")
        };
        let memory = cell::Cell::new(0_u64);
        let netlink_time = best(&|| {
            let (took, more) = measure_svclab(runtime, agent, size);
            memory.set(memory.get().max(more));
            took
        });
        let bare = best(&|| measure_netlink(runtime, size));
        let batch = best(&|| measure_ip_batch(size));
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let milliseconds = |time: Duration| right(format!("{:.1} ms", time.as_secs_f64() * 1e3));
        table.add_row([
            right(size.to_string()),
            milliseconds(netlink_time),
            milliseconds(netlink_time / u32::from(size)),
            milliseconds(bare),
            right(format!(
                "{:.2} times",
                netlink_time.as_secs_f64() / bare.as_secs_f64()
            )),
            milliseconds(batch),
            right(format!("{} KiB", memory.get() / u64::from(size))),
        ]);
    }
    table
}

/// Returns the address of a namespace and of the router's peer interface.
fn addresses(index: u16) -> (Ipv4Addr, Ipv4Addr) {
    let [high, low] = index.to_be_bytes();
    (
        Ipv4Addr::new(10, high, low, 2),
        Ipv4Addr::new(10, high, low, 1),
    )
}

fn plan(size: u16) -> Plan {
    let link =
        |namespace: &str, name: String, peer_namespace: String, peer: String, address: Ipv4Addr| {
            Link {
                mac: Mac::from_names(namespace, &name),
                kind: LinkKind::Veth {
                    namespace: peer_namespace,
                    peer,
                },
                addresses: vec![format!("{address}/24").parse().expect("an address")],
                bridge: None,
                port: PortSettings::default(),
                down: false,
                mtu: None,
                name,
            }
        };
    let mut router = Namespace {
        name: "router".to_owned(),
        ..Namespace::default()
    };
    let mut namespaces = Vec::new();
    for at in 0..size {
        let (own_address, gateway) = addresses(at);
        let name = format!("ns-{at}");
        router.links.push(link(
            "router",
            format!("v{at}"),
            name.clone(),
            "eth0".to_owned(),
            gateway,
        ));
        namespaces.push(Namespace {
            links: vec![link(
                &name,
                "eth0".to_owned(),
                "router".to_owned(),
                format!("v{at}"),
                own_address,
            )],
            routes: vec![Route {
                via: Some(gateway.into()),
                ..Route::new("0.0.0.0/0".parse().expect("a network"), "eth0")
            }],
            name,
            ..Namespace::default()
        });
    }
    namespaces.insert(0, router);
    Plan {
        namespaces,
        ..Plan::default()
    }
}

/// Measures the build time, and the growth of kernel memory in KiB. Memory of the previous lab that
/// the kernel frees late reduces the growth, so the maximum of several measurements is most
/// accurate.
fn measure_svclab(runtime: &Runtime, agent: &Agent, size: u16) -> (Duration, u64) {
    let plan = plan(size);
    runtime.block_on(async {
        let before = kernel_memory();
        let begun = Instant::now();
        let session = agent.build(plan).await.expect("the lab is built");
        let took = begun.elapsed();
        let more = kernel_memory().saturating_sub(before);
        session.remove().await.expect("the lab is removed");
        (took, more)
    })
}

/// Returns the kernel memory in slabs and per-CPU allocations in KiB.
fn kernel_memory() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").expect("/proc/meminfo can be read");
    let kibibytes = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    let lines = meminfo
        .lines()
        .filter(|line| line.starts_with("Slab:") || line.starts_with("Percpu:"));
    lines.filter_map(kibibytes).sum()
}

/// Measures a sequential program that uses the system calls directly.
fn measure_netlink(runtime: &Runtime, size: u16) -> Duration {
    let here = || File::open("/proc/thread-self/ns/net").expect("a namespace");
    runtime.block_on(async {
        let home = here();
        let begun = Instant::now();
        let mut made = Vec::new();
        for _ in 0..=size {
            unshare(CloneFlags::CLONE_NEWNET).expect("root has the privilege");
            let (connection, handle, _) = rtnetlink::new_connection().expect("a socket");
            tokio::spawn(connection);
            made.push((here(), handle));
        }
        setns(&home, CloneFlags::CLONE_NEWNET).expect("the namespace exists");
        let (router, rest) = made.split_first().expect("a namespace");
        for (number, (ns, handle)) in (0..).zip(rest) {
            let (own_address, gateway) = addresses(number);
            let veth = LinkVeth::new(&format!("v{number}"), "eth0")
                .set_info_data(netlink_packet_route::link::InfoData::Veth(
                    netlink_packet_route::link::InfoVeth::Peer(
                        LinkUnspec::new_with_name("eth0")
                            .setns_by_fd(ns.as_raw_fd())
                            .build(),
                    ),
                ))
                .build();
            router
                .1
                .link()
                .add(veth)
                .execute()
                .await
                .expect("a veth pair");
            for (handle, name, address) in [
                (&router.1, format!("v{number}"), gateway),
                (handle, "eth0".to_owned(), own_address),
            ] {
                let mut links = handle.link().get().match_name(name).execute();
                let link = links.try_next().await.expect("links").expect("a link");
                let index = link.header.index;
                handle
                    .address()
                    .add(index, address.into(), 24)
                    .execute()
                    .await
                    .expect("an address");
                let up = LinkUnspec::new_with_index(index).up().build();
                handle
                    .link()
                    .set(up)
                    .execute()
                    .await
                    .expect("the interface can be set up");
            }
            let route = rtnetlink::RouteMessageBuilder::<Ipv4Addr>::new()
                .gateway(gateway)
                .build();
            handle.route().add(route).execute().await.expect("a route");
        }
        begun.elapsed()
    })
}

/// Measures a shell script with `ip -batch`.
fn measure_ip_batch(size: u16) -> Duration {
    let mut lines = String::new();
    let mut inside = String::new();
    for index in 0..size {
        let (address, gateway) = addresses(index);
        let _ = write!(
            lines,
            "netns add svclab-bench-{index}\nlink add v{index} type veth peer name eth0 netns svclab-bench-{index}\n\
             address add {gateway}/24 dev v{index}\nlink set v{index} up\n"
        );
        let _ = write!(
            inside,
            "ip -n svclab-bench-{index} -batch - <<E\naddress add {address}/24 dev eth0\nlink set eth0 up\n\
             route add default via {gateway}\nE\n"
        );
    }
    // Runs in separate namespaces, which remove everything that the script leaves behind.
    let script = format!(
        "mount -t tmpfs none /run && mkdir -p /run/netns && ip link set lo up\n\
         date +%s%N >&2\nip -batch - <<E\n{lines}E\n{inside}date +%s%N >&2"
    );
    let output = Command::new("unshare")
        .args([
            "--net",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-e",
            "-c",
            "exec sh -es",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            use std::io::Write as _;
            child
                .stdin
                .take()
                .expect("a pipe")
                .write_all(script.as_bytes())?;
            child.wait_with_output()
        })
        .expect("a shell");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let times: Vec<u64> = stderr
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect();
    assert_eq!(times.len(), 2, "{stderr}");
    Duration::from_nanos(times[1] - times[0])
}
