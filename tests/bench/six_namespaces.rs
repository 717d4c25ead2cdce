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

use lab::{Case, Ready};
use script::Place;
use table::Way;

/// Number of measurements of each method.
const SAMPLES: usize = 30;

fn main() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("criterion");
    // Deletes results of earlier runs.
    drop(std::fs::remove_dir_all(&target));
    let mut criterion = Criterion::default()
        .output_directory(&target)
        .configure_from_args();
    let place = RefCell::new(Place::open());
    let ready = Ready::start();
    for backend in [Backend::Legacy, Backend::Nft] {
        let case = Case::with(backend);
        let mut group = criterion.benchmark_group(backend.word());
        group
            .sample_size(SAMPLES)
            .sampling_mode(SamplingMode::Flat)
            .warm_up_time(Duration::from_secs(2))
            .measurement_time(Duration::from_secs(10));
        for way in Way::ALL {
            group.bench_function(way.word(), |bencher| {
                bencher.iter_custom(|times| {
                    let mut sum = Duration::ZERO;
                    for _ in 0..times {
                        sum += match way {
                            Way::Script => {
                                let mut place = place.borrow_mut();
                                let took = place.stand(backend, case.plan());
                                place.down();
                                took
                            }
                            Way::Command => case.run(),
                            Way::Agent => ready.verdict(&case),
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
