//! A node in its own namespace with a real kube-proxy, and an API server that serves the objects of
//! the test.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use serde_json::Value;
use svclab_model::plan::{
    self, EvidenceRequest, Link, LinkKind, Mac, Namespace, Plan, PortSettings,
};
use svclab_rules::kube_proxy::{KubeProxy, Mode, flags};
use svclab_runner::kernel::{Agent, Session};
use svclab_test_support::evidence::single_stage;

use crate::cluster::{Cluster, NODE};
use crate::differences::{self, Texts};
use crate::marker::{self, Marker};

/// Address of the node.
pub const ADDRESS: &str = "192.168.50.10";

/// Command that gives iptables-legacy the program names that kube-proxy calls, in a new directory.
const LINK_LEGACY: &str = "mkdir \"$0\" && \
     for word in iptables ip6tables; do for verb in '' -save -restore; do \
     ln -s \"$(command -v \"$word-legacy$verb\")\" \"$0/$word$verb\" || exit; done; done";

/// Number of nodes so far. The programs of each lab have their own user, so the nodes of one agent
/// need directories of their own.
static NODES: AtomicU32 = AtomicU32::new(0);

/// Name of the process in the lab.
const PROXY: &str = "kube-proxy";

/// Maximum time until kube-proxy has written the marker. Without KVM, a sync in a guest takes some
/// seconds.
const MAX_MARKER_WAIT: Duration = Duration::from_mins(2);

/// Time for which an unexpected state with its marker is read again, before a second marker is
/// sent.
const MAX_UNEXPECTED_TIME: Duration = Duration::from_secs(5);

/// Returns the pause between two reads of the rules. kube-proxy sends no event when it has written.
/// In a guest without KVM a sync takes seconds, and reading slows it down.
fn pause(mode: Mode) -> Duration {
    Duration::from_millis(if mode == Mode::Ipvs { 200 } else { 20 })
}

/// A node with a running kube-proxy.
pub struct ProxyNode {
    session: Session,
    binary: String,
    proxy: KubeProxy,
    marker: Marker,
    /// Directory in which iptables-legacy has the names that kube-proxy calls.
    legacy: String,
}

impl ProxyNode {
    /// Starts a kube-proxy on a new node of the agent's kernel. The flags come from `proxy`, and
    /// the API server serves the objects of `first`.
    pub async fn start(
        agent: &Agent,
        binary: &str,
        proxy: &KubeProxy,
        first: &Cluster,
    ) -> Result<Self, Failed> {
        let mut session = agent.build(node()).await?;
        let marker = Marker::default();
        session
            .serve(
                NODE,
                plan::API_ADDRESS,
                first.with_marker(&marker)?.values()?,
            )
            .await?;
        let mut bench = Self {
            session,
            binary: binary.to_owned(),
            proxy: proxy.clone(),
            marker,
            legacy: format!("/run/legacy-{}", NODES.fetch_add(1, Ordering::Relaxed)),
        };
        if proxy.mode != Mode::Ipvs {
            let directory = bench.legacy.clone();
            let arguments = ["-c", LINK_LEGACY, &directory];
            bench.run_program("sh", &arguments).await?;
        }
        bench.start_proxy().await?;
        Ok(bench)
    }

    /// Starts the kube-proxy; on the host with iptables-legacy. In a user namespace, iptables-nft
    /// cannot send as many rules at once as kube-proxy passes to it.
    async fn start_proxy(&mut self) -> Result<(), Failed> {
        if self.proxy.mode == Mode::Ipvs {
            let words = proxy_arguments(&self.proxy);
            self.session
                .start(NODE, PROXY, &self.binary, &words)
                .await?;
            return Ok(());
        }
        let path = format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", self.legacy);
        let mut words = vec![path, self.binary.clone()];
        words.extend(proxy_arguments(&self.proxy));
        self.session.start(NODE, PROXY, "env", &words).await?;
        Ok(())
    }

    /// Kills the kube-proxy, changes the objects, and starts another on the same node.
    pub async fn restart(&mut self, next: &Cluster) -> Result<(), Failed> {
        self.session.stop(PROXY).await?;
        let marked = next.with_marker(&self.marker)?;
        self.session
            .serve(NODE, plan::API_ADDRESS, marked.values()?)
            .await?;
        self.start_proxy().await
    }

    /// Serves these objects and waits until the kube-proxy has written them. Returns an error with
    /// the differences if the state does not equal the rules that svclab generates.
    ///
    /// kube-proxy receives the objects one by one and may write in between, so each set has a
    /// [`Marker`] that comes last. In ipvs mode the marker is written before most other objects. An
    /// unexpected state with the marker is read again for a while, and then a second marker is
    /// served. Once that one is written, all earlier work is finished, and remaining differences
    /// are real.
    pub async fn check_objects(&mut self, cluster: &Cluster) -> Result<(), Failed> {
        let marked = cluster.with_marker(&self.marker)?;
        let reading = self.serve_and_read(&marked, MAX_UNEXPECTED_TIME).await?;
        self.marker.advance();
        if reading.is_none() {
            return Ok(());
        }
        let marked = cluster.with_marker(&self.marker)?;
        let reading = self.serve_and_read(&marked, Duration::ZERO).await?;
        self.marker.advance();
        // The second marker itself may be partly written.
        let Some(texts) = reading else {
            return Ok(());
        };
        let Some(differences) = differences::compare_without_marker(&self.proxy, &marked, &texts)?
        else {
            return Ok(());
        };
        let words = proxy_arguments(&self.proxy).join(" ");
        let objects = serde_json::to_string(&cluster.values()?)?;
        Err(format!(
            "a kube-proxy {} with {words} and the generated rules differ, - only the kube-proxy's, \
             + only generated:\n{differences}\nobjects: {objects}",
            self.proxy.version
        )
        .into())
    }

    /// Serves these objects and reads the state until it is as expected, or until `patience` has
    /// passed since the marker was written. Returns the last state that was not as expected.
    async fn serve_and_read(
        &mut self,
        marked: &Cluster,
        max_wait: Duration,
    ) -> Result<Option<Texts>, Failed> {
        self.session
            .serve(NODE, plan::API_ADDRESS, marked.values()?)
            .await?;
        let begun = Instant::now();
        while !self.has_marker().await? {
            if let Some(reason) = self.stop_reason(begun).await? {
                return Err(reason.into());
            }
            tokio::time::sleep(pause(self.proxy.mode)).await;
        }
        let came = Instant::now();
        loop {
            let texts = self.read().await?;
            if differences::compare_all(&self.proxy, marked, &texts)?.is_none() {
                return Ok(None);
            }
            if self.proxy.mode != Mode::Ipvs || came.elapsed() >= max_wait {
                return Ok(Some(texts));
            }
            tokio::time::sleep(pause(self.proxy.mode)).await;
        }
    }

    /// Whether the kube-proxy has written the marker.
    async fn has_marker(&mut self) -> Result<bool, Failed> {
        if self.proxy.mode != Mode::Ipvs {
            let rules = self
                .run_program("iptables-legacy-save", &["-t", "nat"])
                .await?;
            return Ok(self.marker.is_in_rules(&rules));
        }
        // Starting a program in a guest is slow and takes time from the kube-proxy, so this reads
        // evidence. The last action of a sync unbinds unneeded addresses, such as that of the
        // previous marker.
        let evidence = single_stage(self.session.probe().await?);
        let links = evidence.kernel_state.values().flat_map(|held| &held.links);
        let bound: BTreeSet<String> = links
            .flat_map(|link| &link.addresses)
            .map(|address| address.ip().to_string())
            .filter(|address| marker::is_marker(address))
            .collect();
        if bound != BTreeSet::from([self.marker.address()]) {
            return Ok(false);
        }
        let servers = self.run_program("ipvsadm", &["-S", "-n"]).await?;
        Ok(self.marker.is_in_virtual_servers(&servers))
    }

    /// Returns why waiting is useless; `None` if the kube-proxy may still write.
    async fn stop_reason(&mut self, begun: Instant) -> Result<Option<String>, Failed> {
        let running = self.session.program_status(PROXY).await?;
        let log_end = || {
            let lines: Vec<&str> = running.output.lines().collect();
            lines[lines.len().saturating_sub(20)..].join("\n")
        };
        if let Some(ended) = &running.ended {
            return Ok(Some(format!("kube-proxy {ended}:\n{}", log_end())));
        }
        if begun.elapsed() > MAX_MARKER_WAIT {
            let seconds = MAX_MARKER_WAIT.as_secs();
            let reason = format!(
                "kube-proxy wrote no marker within {seconds} s:\n{}",
                log_end()
            );
            return Ok(Some(reason));
        }
        Ok(None)
    }

    async fn read(&mut self) -> Result<Texts, Failed> {
        if self.proxy.mode != Mode::Ipvs {
            return Ok(Texts {
                rules: self.run_program("iptables-legacy-save", &[]).await?,
                ..Texts::default()
            });
        }
        Ok(Texts {
            rules: self.run_program("iptables-save", &[]).await?,
            sets: self.run_program("ipset", &["save"]).await?,
            servers: self.run_program("ipvsadm", &["-S", "-n"]).await?,
            addresses: self.run_program("ip", &["addr"]).await?,
        })
    }

    async fn run_program(&mut self, program: &str, arguments: &[&str]) -> Result<String, Failed> {
        let finished = self.session.run(NODE, program, arguments, "").await?;
        if finished.success {
            Ok(finished.stdout)
        } else {
            Err(format!("{program}: {}", finished.stderr).into())
        }
    }
}

/// Returns a plan with a node and the peer of its link.
fn node() -> Plan {
    let end = |name: &str, peer_namespace: &str, address: &str| Namespace {
        name: name.to_owned(),
        links: vec![Link {
            name: "eth0".to_owned(),
            kind: LinkKind::Veth {
                namespace: peer_namespace.to_owned(),
                peer: "eth0".to_owned(),
            },
            mac: Mac::from_names(name, "eth0"),
            addresses: address.parse().into_iter().collect(),
            bridge: None,
            port: PortSettings::default(),
            down: false,
            mtu: None,
        }],
        ..Namespace::default()
    };
    Plan {
        case: "kube-proxy".to_owned(),
        namespaces: vec![
            end(NODE, "outside", &format!("{ADDRESS}/24")),
            end("outside", NODE, "192.168.50.1/24"),
        ],
        evidence: EvidenceRequest {
            links: vec![NODE.to_owned()],
            ..EvidenceRequest::default()
        },
        ..Plan::default()
    }
}

/// Returns the flags of the kube-proxy for `proxy`.
fn proxy_arguments(proxy: &KubeProxy) -> Vec<String> {
    flags(proxy, NODE, plan::API_ADDRESS)
}

/// Returns the path of the kube-proxy that `scripts/test --full` builds.
pub fn binary() -> Result<PathBuf, Failed> {
    cached_binary(crate::VERSION)
}

/// Returns the path of the kube-proxy with `patches/NAME.patch`, which `scripts/test --full`
/// builds.
pub fn patched(name: &str) -> Result<PathBuf, Failed> {
    cached_binary(&format!("{}+{name}", crate::VERSION))
}

fn cached_binary(file: &str) -> Result<PathBuf, Failed> {
    let cache = svclab_runner::kernel::guest::find_directory(
        |name| std::env::var_os(name),
        nix::unistd::geteuid().is_root(),
    )?;
    let path = cache.join("kube-proxy").join(file);
    path.canonicalize().map_err(|error| {
        format!(
            "kube-proxy is not at {}: {error}; `./scripts/test --full` builds it",
            path.display()
        )
        .into()
    })
}

/// Converts an object to JSON for the API server.
pub fn to_value(object: &impl serde::Serialize) -> Result<Value, Failed> {
    Ok(serde_json::to_value(object)?)
}
