//! Kernels that a user can select, as text.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Kernels that a user selects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum KernelChoice {
    /// This host if it can run the plan, else a guest with the newest kernel.
    #[default]
    Auto,
    /// Only this host.
    Host,
    /// This host if it can run the plan, and a guest of every available series.
    All,
    /// Guest with a kernel of the distribution, by series or release.
    Series(String),
    /// Guest with the user's own kernel.
    UserKernel {
        /// Path of the kernel file.
        kernel: PathBuf,
        /// Directory of the kernel's modules. `None` if it must be searched.
        modules: Option<PathBuf>,
    },
}

impl FromStr for KernelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "auto" => Self::Auto,
            "host" => Self::Host,
            "all" => Self::All,
            _ if text.contains('/') => Self::UserKernel {
                kernel: PathBuf::from(text),
                modules: None,
            },
            _ if text.starts_with(|first: char| first.is_ascii_digit()) => {
                Self::Series(text.to_owned())
            }
            _ => {
                return Err(
                    "expected `auto`, `host`, `all`, a version such as `6.12`, or the path of a \
                     kernel file with a `/`"
                        .to_owned(),
                );
            }
        })
    }
}

impl fmt::Display for KernelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Host => f.write_str("host"),
            Self::All => f.write_str("all"),
            Self::Series(series) => f.write_str(series),
            Self::UserKernel { kernel, .. } => kernel.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_choice_round_trips_through_text() {
        for text in [
            "auto",
            "host",
            "all",
            "6.12",
            "6.1.0-56-cloud-amd64",
            "/boot/vmlinuz",
        ] {
            let choice: KernelChoice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
        }
        assert!("guest".parse::<KernelChoice>().is_err());
    }
}
