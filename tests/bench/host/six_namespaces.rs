//! Measures six namespaces with rules, from plan to verdict, beside the same lab as a shell script
//! of `ip` and `iptables-restore`.
//!
//! The measurements exclude the removal of labs: each ends with its verdict, and the next begins
//! once the kernel has removed everything. Run by `scripts/bench`, which installs the required
//! programs. Needs root.

mod lab;
mod plan;
mod script;
mod table;

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, SamplingMode};
use svclab_model::plan::Backend;

use lab::{Case, RunningAgent};
use script::ScriptHost;
use table::Method;

/// Number of measurements of each method.
const SAMPLES: usize = 30;

fn main() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("criterion");
    // Deletes results of earlier runs.
    drop(std::fs::remove_dir_all(&target));
    let mut criterion = Criterion::default()
        .output_directory(&target)
        .configure_from_args();
    let place = RefCell::new(ScriptHost::new());
    let ready = RunningAgent::start();
    for backend in [Backend::Legacy, Backend::Nft] {
        let case = Case::new(backend);
        let mut group = criterion.benchmark_group(backend.name());
        group
            .sample_size(SAMPLES)
            .sampling_mode(SamplingMode::Flat)
            .warm_up_time(Duration::from_secs(2))
            .measurement_time(Duration::from_secs(10));
        for way in Method::ALL {
            group.bench_function(way.label(), |bencher| {
                bencher.iter_custom(|times| {
                    let mut sum = Duration::ZERO;
                    for _ in 0..times {
                        sum += match way {
                            Method::Script => {
                                let mut place = place.borrow_mut();
                                let took = place.up(backend, case.plan());
                                place.down();
                                took
                            }
                            Method::Command => case.run(),
                            Method::Agent => ready.measure_verdict(&case),
                        };
                        place.borrow_mut().settle();
                    }
                    sum
                });
            });
        }
        group.finish();
    }
    criterion.final_summary();
    println!("{}", table::table(&target));
}
