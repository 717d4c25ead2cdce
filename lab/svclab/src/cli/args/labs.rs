//! Arguments of `labs`.

use clap::{Args, Subcommand};

pub(super) const LABS_HELP: &str = "\
Examples:
  svclab labs                                     all labs
  svclab labs show node-port > my-lab.yaml        a copy to change
  svclab run my-lab.yaml

A name is found in the directory of labs: --topologies or SVCLAB_TOPOLOGIES, otherwise ./topologies
if it exists, otherwise the labs that are embedded in svclab.";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LabsArguments {
    /// Labs, or directories of labs. By default, all labs, with those of subdirectories
    #[arg(value_name = "LAB")]
    pub(crate) names: Vec<String>,
    #[command(subcommand)]
    pub(crate) command: Option<LabsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabsCommand {
    /// Print the file of a lab
    Show {
        /// Name of the lab
        #[arg(value_name = "LAB")]
        name: String,
    },
}
