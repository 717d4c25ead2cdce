//! Measures the cost of evidence on this host, with and without drops: from the probe request to
//! the evidence of one accepted connection.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use svclab_model::evidence::{DropEvidence, StageEvidence};
use svclab_model::plan::{Backend, EvidenceRequest};
use svclab_runner::kernel::Host;
use svclab_test_support::evidence::single_stage;
use tokio::runtime::Runtime;

use super::{AGENT, SAMPLES, milliseconds, plan, right_aligned};

/// Returns the table. The first probe has its own column: the first drop trace of a process reads
/// the kernel's type information (BTF).
pub fn table(runtime: &Runtime) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::ASCII_MARKDOWN)
        .set_header(["iptables", "watched", "first", "median", "best"]);
    for backend in [Backend::Legacy, Backend::Nft] {
        for (label, everything, drops) in [
            ("nothing", false, false),
            ("all but drops", true, false),
            ("drops, too", true, true),
        ] {
            let mut took = runtime.block_on(measure_probes(backend, everything, drops));
            let first = took.remove(0);
            took.sort();
            let times = [first, took[took.len() / 2], took[0]];
            let mut row = vec![backend.name().into(), label.into()];
            row.extend(times.map(|time| right_aligned(milliseconds(time))));
            table.add_row(row);
        }
    }
    table
}

async fn measure_probes(backend: Backend, everything: bool, drops: bool) -> Vec<Duration> {
    let host = Host::with_agent(PathBuf::from(AGENT));
    let host = if drops { host } else { host.without_drops() };
    let agent = host.start().await.expect("an agent");
    let mut plan = plan::plan(backend);
    if everything {
        plan.evidence = EvidenceRequest::everything(&plan);
    }
    let mut session = agent.build(plan).await.expect("the lab is built");
    let mut took = Vec::new();
    for _ in 0..=SAMPLES {
        let begun = Instant::now();
        let evidence: StageEvidence =
            single_stage(session.probe().await.expect("the lab is probed"));
        took.push(begun.elapsed());
        let traced = matches!(evidence.drops, DropEvidence::Watched { .. });
        assert_eq!(traced, everything && drops, "{:?}", evidence.drops);
    }
    took
}
