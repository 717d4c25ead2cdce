//! Arguments that select cases and the kernels for them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::embedded::EMBEDDED_LABS;
use svclab_model::plan::MaxWait;
use svclab_rules::kube_proxy::sync_timeout;
use svclab_runner::kernel::KernelChoice;
use svclab_runner::run::select::DEFAULT_LAB_DIRECTORY;
use svclab_runner::run::{LabDirectory, PrepareOptions};
use svclab_scenario::duration;

/// Place of labs that are given by name.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LabSource {
    /// Directory of labs that are given by name [default: ./topologies if it exists, otherwise the
    /// labs that are embedded in svclab]
    #[arg(long, env = "SVCLAB_TOPOLOGIES", value_name = "DIR")]
    pub(crate) topologies: Option<PathBuf>,
}

impl LabSource {
    /// Returns the place of labs that are given by name.
    pub(crate) fn labs(&self) -> LabDirectory<'_> {
        let default = Path::new(DEFAULT_LAB_DIRECTORY);
        match &self.topologies {
            Some(directory) => directory.into(),
            None if default.is_dir() => default.into(),
            None => LabDirectory::Embedded(&EMBEDDED_LABS),
        }
    }
}

/// Selected cases and how to prepare them.
#[derive(Debug, Clone, Args)]
pub(crate) struct Selection {
    /// Labs or cases: NAME, the path of a lab's file, `-` for standard input, or a directory of
    /// labs. NAME/axis=value,… selects all cases with these values: `clb-hairpin/rpFilter=1`.
    /// Patterns with `*` and `?` select labs, values or names of cases: `conformance/*`,
    /// `local-ingress/mode=ip*`, `local-ingress/*mode=ipvs*`. A directory, such as conformance,
    /// selects its files *.yaml and *.yml, without subdirectories. By default, all labs directly in
    /// the directory of labs
    #[arg(value_name = "LAB[/CASE]")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) source: LabSource,
    /// Maximum wait for an answer, for probes without their own: a duration such as 8s, or
    /// `settled`. With `settled`, probes wait 3.5 s; where a timeout is expected, only until the
    /// evidence proves that no answer can arrive
    #[arg(long = "max-wait", alias = "patience", default_value_t = MaxWait::SETTLED, value_parser = parse_max_wait, value_name = "settled|DURATION")]
    pub(crate) max_wait: MaxWait,
    /// kube-proxy to run, instead of generated rules, on every node that has kube-proxy. The lab
    /// defines its configuration
    #[arg(long, value_name = "PATH")]
    pub(crate) kube_proxy: Option<PathBuf>,
    /// Also read dumps and objects that a lab names outside its own directory
    #[arg(long)]
    pub(crate) allow_outside: bool,
    /// Maximum time for a kube-proxy to write its rules, at the start and after each step: 1s to
    /// 1h, such as 5m [default: the lab's value, otherwise 2m]
    #[arg(long, value_name = "DURATION", value_parser = sync_timeout)]
    pub(crate) kube_proxy_timeout: Option<Duration>,
}

impl Selection {
    /// Returns the options for preparing the cases.
    pub(crate) fn prepare_options(&self) -> PrepareOptions {
        PrepareOptions {
            kube_proxy: self.kube_proxy.clone(),
            allow_outside: self.allow_outside,
            ..PrepareOptions::from(self.max_wait)
        }
    }
}

/// Kernels that run the cases.
#[derive(Debug, Clone, Args)]
pub(crate) struct KernelArguments {
    /// Kernel for the cases: `host`, a guest's version (6.12), the path of a guest's kernel file,
    /// `auto` or `all`. `auto` is the host if possible, otherwise the newest guest. `all` is the
    /// host and a guest of every version
    #[arg(long, default_value_t, value_name = "KERNEL", env = "SVCLAB_KERNEL")]
    pub(crate) kernel: KernelChoice,
    /// Directory of the modules, if --kernel is a path
    #[arg(long, value_name = "DIR")]
    pub(crate) modules: Option<PathBuf>,
}

impl KernelArguments {
    /// Combines both arguments.
    pub(crate) fn choice(&self) -> KernelChoice {
        match &self.kernel {
            KernelChoice::UserKernel { kernel, .. } => KernelChoice::UserKernel {
                kernel: kernel.clone(),
                modules: self.modules.clone(),
            },
            other => other.clone(),
        }
    }

    /// Returns the arguments for the same choice, each with a leading space.
    pub(crate) fn rerun_arguments(&self) -> String {
        let kernel = (self.kernel != KernelChoice::Auto)
            .then(|| format!(" --kernel {}", shell_word(&self.kernel.to_string())));
        let modules = self.modules.as_ref();
        let modules = modules
            .map(|modules| format!(" --modules {}", shell_word(&modules.display().to_string())));
        [kernel, modules].into_iter().flatten().collect()
    }
}

/// Quotes text as one word for a shell, if necessary.
pub(crate) fn shell_word(text: &str) -> String {
    shlex::try_quote(text).map_or_else(|_| text.to_owned(), std::borrow::Cow::into_owned)
}

/// Parses `settled` or a duration.
fn parse_max_wait(text: &str) -> Result<MaxWait, String> {
    match text {
        "settled" => Ok(MaxWait::SETTLED),
        text => parse_wait_duration(text)
            .map(MaxWait::fixed)
            .map_err(|error| format!("{error}, or `settled`")),
    }
}

/// Parses a duration such as `3s`, `500ms` or `1m`, from 1 ms to 1 h.
pub(crate) fn parse_wait_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| error.to_string())
}
