//! Tests the trace and drop evidence of each guest kernel, as on the host.

use svclab_model::evidence::{DropEvidence, StageEvidence};
use svclab_model::plan::Backend;
use svclab_test_support::block_on;
use svclab_test_support::evidence::{dropped, single_stage, traced};
use svclab_test_support::guests::new_guest;

use crate::support::SERIES;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

#[test]
fn trace_every_guest_kernel_reports_all_rules() {
    for series in SERIES {
        block_on(async {
            let agent = new_guest(series).await.start().await.expect("a guest");
            for backend in [Backend::Nft, Backend::Legacy] {
                let mut session = agent
                    .build(traced::router_plan(backend))
                    .await
                    .expect("a lab");
                let evidence = single_stage(session.probe().await.expect("evidence"));
                traced::check_trace(&evidence, backend);
                check_drops(&evidence, backend);
            }
        });
    }
}

#[test]
fn drops_every_guest_kernel_reports_all() {
    for series in SERIES {
        block_on(async {
            let agent = new_guest(series).await.start().await.expect("a guest");
            for backend in [Backend::Nft, Backend::Legacy] {
                for short in [false, true] {
                    let plan = dropped::drop_plan(backend, 1, short);
                    let mut session = agent.build(plan).await.expect("a lab");
                    let evidence = single_stage(session.probe().await.expect("evidence"));
                    dropped::check_drops(&evidence, 1, short);
                }
            }
        });
    }
}

/// Checks the drops of that plan, as the kernel reports them.
fn check_drops(evidence: &StageEvidence, backend: Backend) {
    let DropEvidence::Watched {
        missed: lost,
        dropped,
    } = &evidence.drops
    else {
        panic!("{:?}", evidence.drops);
    };
    assert_eq!(*lost, 0);
    let mut drops = Vec::new();
    for each in dropped.iter().filter(|each| !each.packet.is_empty()) {
        let version = each.packet[0] >> 4;
        if traced::destination_port(version, &each.packet) == 9999 {
            let location = (each.namespace.as_str(), each.interface.as_deref());
            drops.push((version, location, each.reason.as_str()));
            // The drop has the same clock as the packets: the packet was received just before.
            let header = if version == 4 { 20 } else { 40 };
            let received = evidence.packets.iter().find(|packet| {
                let behind = packet.bytes.get(14 + header..);
                packet.interface == "client" && behind == Some(&each.packet[header..])
            });
            let came = received.expect("the packet is captured, too").time;
            assert!(came.abs_diff(each.time) < SECOND, "{came} {each:?}");
            // Newer kernels report `nf_tables` drops in `nft_do_chain`, where the drop is decided.
            let function = each.function.as_deref();
            let nft = backend == Backend::Nft && function == Some("nft_do_chain");
            assert!(nft || function == Some("nf_hook_slow"), "{each:?}");
        }
    }
    // The rule that drops, and the rule that rejects.
    let expected = |version| (version, ("router", Some("client")), "NETFILTER_DROP");
    assert_eq!(drops, [expected(4), expected(6)], "{dropped:#?}");
}
