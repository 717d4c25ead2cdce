//! Renders the measurements beside those of the shell script and the targets.

use std::path::{Path, PathBuf};
use std::time::Duration;

use comfy_table::{Cell, CellAlignment, Table, presets};
use svclab_model::plan::Backend;

/// Method of building and probing the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// `ip` and `iptables-restore`, one process for each line.
    Script,
    /// `svclab run`, from the start of the process to its end.
    Command,
    /// From a plan to its verdict, in a running agent.
    Agent,
}

impl Method {
    /// All methods, the script first.
    pub const ALL: [Self; 3] = [Self::Script, Self::Command, Self::Agent];

    /// Returns the name in tables.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Script => "shell script",
            Self::Command => "svclab run",
            Self::Agent => "plan to verdict",
        }
    }
}

/// Returns the required speed of svclab relative to the script.
pub const fn target_speedup(backend: Backend) -> f64 {
    match backend {
        Backend::Legacy => 5.0,
        Backend::Nft => 2.0,
    }
}

/// Renders the medians stored in `directory`. Methods that were not measured have no row.
pub fn table(directory: &Path) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "iptables",
        "",
        "median",
        "faster than the script",
        "aim",
    ]);
    for backend in [Backend::Legacy, Backend::Nft] {
        let script_time = median(directory, backend, Method::Script);
        for way in Method::ALL {
            let Some(median) = median(directory, backend, way) else {
                continue;
            };
            let times = script_time
                .filter(|_| way != Method::Script)
                .map(|script| script.as_secs_f64() / median.as_secs_f64());
            let met = times
                .filter(|_| way == Method::Agent)
                .map(|times| (times >= target_speedup(backend), target_speedup(backend)));
            let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
            table.add_row([
                Cell::new(backend.name()),
                Cell::new(way.label()),
                right(format!("{:.1} ms", median.as_secs_f64() * 1e3)),
                right(times.map_or_else(String::new, |times| format!("{times:.1} times"))),
                Cell::new(met.map_or_else(String::new, |(met, aim)| {
                    format!("{aim} times: {}", if met { "met" } else { "missed" })
                })),
            ]);
        }
    }
    table
}

/// Reads the median of a benchmark from criterion's file `GROUP/NAME/new/estimates.json`.
fn median(directory: &Path, backend: Backend, way: Method) -> Option<Duration> {
    let file: PathBuf = [backend.name(), way.label(), "new", "estimates.json"]
        .iter()
        .collect();
    let text = std::fs::read(directory.join(file)).ok()?;
    let estimates: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let nanoseconds = estimates["median"]["point_estimate"].as_f64()?;
    Some(Duration::from_secs_f64(nanoseconds / 1e9))
}
