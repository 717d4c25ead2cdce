//! Renders the requests that API servers refused.

use crate::text::count;
use svclab_model::evidence::RejectedRequest;

/// Label of the lines.
pub const LABEL: &str = "API server refused";

/// Returns a line for each request, with the nodes that made it and how often, and one for requests
/// that were not recorded:
/// `GET /api/v1/pods: 404, /api/v1/pods is not served (node-1 3 times, node-2 once)`.
#[must_use]
pub fn render_lines(refused: &[RejectedRequest], left_out: u64) -> Vec<String> {
    let mut grouped: Vec<(&RejectedRequest, Vec<String>)> = Vec::new();
    for request in refused {
        let node = format!("{} {}", request.node, request.describe_count());
        match grouped
            .iter_mut()
            .find(|(earlier, _)| earlier.is_same_rejection(request))
        {
            Some((_, nodes)) => nodes.push(node),
            None => grouped.push((request, vec![node])),
        }
    }
    let more = (left_out > 0).then(|| count(left_out, "more request", "more requests"));
    grouped
        .into_iter()
        .map(|(request, nodes)| format!("{request} ({})", nodes.join(", ")))
        .chain(more)
        .collect()
}
