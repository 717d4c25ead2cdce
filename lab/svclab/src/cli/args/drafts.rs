//! Arguments of `new` and `import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use svclab_model::plan::Mode;

pub(super) const NEW_HELP: &str = "\
Examples:
  svclab new my-lab                           a service with node port, on 2 nodes
  svclab new my-lab --load-balancer --nodes 3
  svclab new my-lab --from cluster.yaml       a lab from the objects of a cluster
  svclab run my-lab.yaml";

pub(super) const IMPORT_HELP: &str = "\
Examples:
  kubectl get nodes,pods,services,endpointslices -A -o yaml | svclab import - > cluster.yaml
  svclab import nodes.yaml pods.json services.yaml --output labs/cluster.yaml
  svclab run cluster.yaml

The lab has one probe for each port of a service with endpoints: to its cluster IP, to its node port
and to its load balancer. Objects that svclab does not use are named on standard error. The lab
contains names, labels and addresses of the cluster; `svclab redact` renames them.";

#[derive(Debug, Args)]
pub(crate) struct NewArguments {
    /// Name of the lab. Writes the file NAME.yaml, which must not exist. May contain a directory
    #[arg(value_name = "NAME")]
    pub(crate) name: PathBuf,
    /// Mode of kube-proxy [default: iptables; with `--from` that of the `ConfigMap` kube-proxy]
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeArgument>,
    /// Put a load balancer in front of the service
    #[arg(long, conflicts_with = "from")]
    pub(crate) load_balancer: bool,
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 2, conflicts_with = "from", value_parser = clap::value_parser!(u8).range(1..=200))]
    pub(crate) nodes: u8,
    /// File with the objects of a cluster, in the format of `svclab import`, or `-` for standard
    /// input. Can be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// Files with Kubernetes objects, as `kubectl get -o yaml` or `-o json` prints them; `-` is
    /// standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Mode of kube-proxy [default: that of the `ConfigMap` kube-proxy among the objects, or iptables]
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeArgument>,
    /// File for the lab, which must not exist [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Mode of kube-proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ModeArgument {
    #[default]
    Iptables,
    Ipvs,
    Nftables,
}

impl From<ModeArgument> for Mode {
    fn from(mode: ModeArgument) -> Self {
        match mode {
            ModeArgument::Iptables => Self::Iptables,
            ModeArgument::Ipvs => Self::Ipvs,
            ModeArgument::Nftables => Self::Nftables,
        }
    }
}
