//! Arguments of `labs`.

use clap::{Args, Subcommand};

use super::LabSource;

pub(super) const LABS_HELP: &str = "\
Examples:
  svclab labs                                     all labs
  svclab labs show local-ingress > my-lab.yaml    a copy to change
  svclab run my-lab.yaml

A name is found in the directory of labs: --topologies or SVCLAB_TOPOLOGIES, otherwise ./topologies
if it exists, otherwise the labs that are embedded in svclab.";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LabsArguments {
    /// Labs, or directories of labs. By default, all labs, with those of subdirectories
    #[arg(value_name = "LAB")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) source: LabSource,
    /// Also read objects that a lab names outside its own directory
    #[arg(long)]
    pub(crate) allow_outside: bool,
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
        #[command(flatten)]
        source: LabSource,
    },
}

pub(super) const LIST_HELP: &str = "\
Examples:
  svclab list                                 the cases of the labs directly in the directory
  svclab list conformance                     the cases of the labs in a directory
  svclab list clb-hairpin/rpFilter=1          the cases with this value
  svclab list 'local-ingress/*mode=ipvs*'     the cases whose names match a pattern
  svclab list '*/mode=ipvs'                   the cases with this value, of each lab that has it

Every command that takes cases takes the same names and patterns. Quote patterns, so that the shell
does not expand them.";

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Labs, cases or patterns, in the format of `svclab run`. By default, all labs directly in the
    /// directory of labs
    #[arg(value_name = "LAB[/CASE]")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) source: LabSource,
    /// Also read objects that a lab names outside its own directory
    #[arg(long)]
    pub(crate) allow_outside: bool,
    /// Also print the pods and load balancers that svclab makes for each case
    #[arg(short, long)]
    pub(crate) verbose: bool,
}
