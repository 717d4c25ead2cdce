//! Renders the requests that API servers refused.

use svclab_model::evidence::Refused;

/// Label of the lines.
pub const LABEL: &str = "API server refused";

/// Returns a line for each request, with the nodes that made it and how often, and one for requests
/// that were not recorded:
/// `GET /api/v1/pods: 404, /api/v1/pods is not served (node-1 3 times, node-2 once)`.
#[must_use]
pub fn lines(refused: &[Refused], left_out: u64) -> Vec<String> {
    let mut told: Vec<(&Refused, Vec<String>)> = Vec::new();
    for each in refused {
        let by = format!("{} {}", each.node, each.how_often());
        match told.iter_mut().find(|(known, _)| known.is_like(each)) {
            Some((_, nodes)) => nodes.push(by),
            None => told.push((each, vec![by])),
        }
    }
    let more = match left_out {
        0 => None,
        1 => Some("1 request more".to_owned()),
        more => Some(format!("{more} requests more")),
    };
    told.into_iter()
        .map(|(each, nodes)| format!("{each} ({})", nodes.join(", ")))
        .chain(more)
        .collect()
}
