//! Arguments of `redact`.

use std::path::PathBuf;

use clap::Args;

/// Help text of `svclab redact` about the key and the exit codes.
pub(crate) const REDACT_HELP: &str = "\
A value has the same new value as in a dump that `collect-node --redact-key` wrote with \
the same key. Addresses, namespaces, names of objects and nodes, and labels are renamed. Ports, \
their names, and words of the Kubernetes API stay. Fields that svclab does not read, such as \
annotations, images and environment variables, are dropped. Make a key:

  head -c 32 /dev/urandom | od -A n -v -t x1 | tr -d ' \\n' >redact.key

Exit code 0: all files are written; 2: the key or a file is invalid, and nothing is written; 3: a \
file cannot be written.";

#[derive(Debug, Args)]
pub(crate) struct RedactArguments {
    /// Files of Kubernetes objects, YAML or JSON in the format of `kubectl get -o yaml`
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// File with the secret key
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// Directory of the redacted files; `objects.yaml` becomes `objects.redacted.yaml`
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
    /// Also print the old and the new name of each object
    #[arg(short, long)]
    pub(crate) verbose: bool,
}
