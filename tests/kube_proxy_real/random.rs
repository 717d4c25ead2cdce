//! Runs random cases one after another in one kernel.

use std::cell::{Cell, RefCell};
use std::path::Path;

use libtest_mimic::Failed;
use proptest::test_runner::{
    Config, FileFailurePersistence, RngSeed, TestCaseError, TestError, TestRunner,
};
use svclab_rules::kube_proxy::Mode;
use svclab_runner::kernel::Agent;

use crate::bench::ProxyNode;
use crate::draw::{Case, cases};
use crate::start_agent;

/// Default seed of the random cases.
const SEED: u64 = 20_210_113;

/// Minimum number of object sets, and number of cases, in the full and the ordinary run.
const FULL: (usize, u32) = (200, 100);
const ORDINARY: (usize, u32) = (8, 8);

/// Runs the random cases of one of `parts` parts of a mode. Each part has its own seed and runs in
/// parallel with the others.
pub fn run_random_cases(mode: Mode, part: u32, parts: u32) -> Result<(), Failed> {
    let seed = match std::env::var("SVCLAB_SEED") {
        Ok(text) => text.parse()?,
        Err(_) => SEED,
    };
    let seed = seed + u64::from(part);
    let full = std::env::var_os("SVCLAB_FULL").is_some();
    let (sets, number) = if full { FULL } else { ORDINARY };
    let (sets, number) = (sets / parts as usize, number / parts);
    let regressions: &'static str = match mode {
        Mode::Ipvs => concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/kube_proxy_real/regressions/ipvs.txt"
        ),
        _ => concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/kube_proxy_real/regressions/iptables.txt"
        ),
    };
    assert!(
        Path::new(regressions).parent().is_some_and(Path::is_dir),
        "{regressions}"
    );
    let config = Config {
        cases: number,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
        // Each shrinking step starts a new kube-proxy.
        max_shrink_iters: 400,
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (agent, binary) = runtime.block_on(start_agent(mode))?;
    let (shown, why) = (Cell::new(0), RefCell::new(String::new()));
    let tried = TestRunner::new(config).run(&cases(mode), |case| {
        runtime
            .block_on(run_case(&agent, &binary, mode, &case, &shown))
            .map_err(|failed| {
                let message = failed.message().unwrap_or("no reason").to_owned();
                if why.replace(message.clone()).is_empty() {
                    // Shrinking may take long.
                    println!("{mode}: seed {seed}: {message}\nshrinking");
                }
                TestCaseError::fail("see the message below")
            })
    });
    match tried {
        Ok(()) if shown.get() >= sets => {
            println!("{mode}: {} sets of objects, seed {seed}", shown.get());
            Ok(())
        }
        Ok(()) => Err(format!(
            "only {} sets of objects were generated, seed {seed}",
            shown.get()
        )
        .into()),
        Err(TestError::Fail(_, case)) => {
            // The last failing step reported on the smallest case, unless shrinking ended with a
            // case that passes.
            let result = runtime.block_on(run_case(&agent, &binary, mode, &case, &shown));
            let message = result
                .err()
                .and_then(|failed| failed.message().map(str::to_owned));
            let failure = message.unwrap_or_else(|| why.take());
            Err(format!("seed {seed}: {failure}\n{case:#?}").into())
        }
        Err(TestError::Abort(reason)) => Err(format!("seed {seed}: {reason}").into()),
    }
}

async fn run_case(
    agent: &Agent,
    binary: &str,
    mode: Mode,
    case: &Case,
    shown: &Cell<usize>,
) -> Result<(), Failed> {
    let proxy = case.proxy(mode)?;
    let mut bench: Option<ProxyNode> = None;
    for (restart, cluster) in case.clusters(mode)? {
        match &mut bench {
            None => bench = Some(ProxyNode::start(agent, binary, &proxy, &cluster).await?),
            Some(bench) if restart => bench.restart(&cluster).await?,
            Some(_) => {}
        }
        if let Some(bench) = &mut bench {
            bench.check_objects(&cluster).await?;
        }
        shown.set(shown.get() + 1);
    }
    Ok(())
}
