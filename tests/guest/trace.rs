//! What happens to packets by each kernel's own account: as on the host.

use svclab::plan::Backend;

use super::guests::{block_on, guest};
use super::support::SERIES;
use super::traced;

#[test]
fn both_kernels_tell_every_step_through_either_iptables() {
    for series in SERIES {
        block_on(async {
            let agent = guest(series).await.start().await.expect("a guest");
            for backend in [Backend::Nft, Backend::Legacy] {
                let mut session = agent.build(traced::plan(backend)).await.expect("a lab");
                let evidence = session.probe().await.expect("evidence");
                traced::check(&evidence, backend);
            }
        });
    }
}
