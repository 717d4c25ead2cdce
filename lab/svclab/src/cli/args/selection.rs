//! Which cases, and where they run.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use svclab_model::plan::Patience;
use svclab_rules::kube_proxy::sync_timeout;
use svclab_runner::kernel::Choice;
use svclab_runner::run::Wishes;
use svclab_scenario::duration;

/// Which cases, and how they are prepared.
#[derive(Debug, Args)]
pub struct Selection {
    /// Labs or cases: NAME, NAME/axis=value,…, a path to a lab's file, or a directory
    /// of labs (conformance), which is its files *.yaml and *.yml without those of
    /// subdirectories. Without any, every lab directly in the directory of labs
    #[arg(value_name = "LAB[/CASE]")]
    pub names: Vec<String>,
    /// How long an answer is waited for by probes that say nothing of it
    /// themselves: `settled`, three seconds, but where a timeout is expected no longer
    /// than it takes to prove that no answer can come any more; or a time, such as 8s
    #[arg(long, default_value_t = Patience::SETTLED, value_parser = settled, value_name = "settled|DURATION")]
    pub patience: Patience,
    /// A kube-proxy that runs on every node that has one, in place of generated rules;
    /// the lab says what it is told
    #[arg(long, value_name = "PATH")]
    pub kube_proxy: Option<PathBuf>,
    /// Read dumps that a lab names outside of its directory, too
    #[arg(long)]
    pub allow_outside: bool,
    /// How long a kube-proxy may take to write its rules, at first and after each step,
    /// such as 5m, from 1s to 1h [default: what the lab says, or 2m]
    #[arg(long, value_name = "DURATION", value_parser = sync_timeout)]
    pub kube_proxy_timeout: Option<Duration>,
}

impl Selection {
    /// How cases are prepared.
    pub fn wishes(&self) -> Wishes {
        Wishes {
            patience: self.patience,
            kube_proxy: self.kube_proxy.clone(),
            dumps: std::collections::BTreeMap::new(),
            allow_outside: self.allow_outside,
        }
    }
}

/// Where cases run.
#[derive(Debug, Clone, Args)]
pub struct PlaceArguments {
    /// The kernel that cases run in: `host`; a guest's, by version (6.12) or by
    /// the path of its file; `auto`, the host where it can and else the newest
    /// guest; `all`, the host and a guest of every version there is
    #[arg(long, default_value_t, value_name = "KERNEL", env = "SVCLAB_KERNEL")]
    pub kernel: Choice,
    /// The directory of the modules of the kernel whose path is given
    #[arg(long, value_name = "DIR")]
    pub modules: Option<PathBuf>,
}

impl PlaceArguments {
    /// Both together.
    pub fn choice(&self) -> Choice {
        match &self.kernel {
            Choice::Own { kernel, .. } => Choice::Own {
                kernel: kernel.clone(),
                modules: self.modules.clone(),
            },
            other => other.clone(),
        }
    }

    /// The words that choose the same again; with a space before each.
    pub fn again(&self) -> String {
        let kernel = (self.kernel != Choice::Auto)
            .then(|| format!(" --kernel {}", word(&self.kernel.to_string())));
        let modules = self.modules.as_ref();
        let modules =
            modules.map(|modules| format!(" --modules {}", word(&modules.display().to_string())));
        [kernel, modules].into_iter().flatten().collect()
    }
}

/// Text as one word for a shell, in quotes if it needs them.
pub fn word(text: &str) -> String {
    shlex::try_quote(text).map_or_else(|_| text.to_owned(), std::borrow::Cow::into_owned)
}

/// `settled`, or a duration.
fn settled(text: &str) -> Result<Patience, String> {
    match text {
        "settled" => Ok(Patience::SETTLED),
        text => patience(text)
            .map(Patience::of)
            .map_err(|error| format!("{error}, or `settled`")),
    }
}

/// A duration such as `3s`, `500ms` or `1m`, from 1 ms to 1 h.
pub fn patience(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| error.to_string())
}
