//! Records the requests that an API server rejected.

use super::request::ApiError;
use svclab_model::evidence::RejectedRequest;

/// Maximum number of different requests that are recorded.
const MAX_REQUESTS: usize = 32;

/// Maximum length of a recorded request, in characters.
const MAX_LENGTH: usize = 400;

/// Rejected requests of one node's API server, in order of first occurrence.
#[derive(Debug)]
pub struct RejectedRequests {
    node: String,
    requests: Vec<RejectedRequest>,
    missed: u64,
}

impl RejectedRequests {
    /// Creates an empty record for a node.
    #[must_use]
    pub fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            requests: Vec::new(),
            missed: 0,
        }
    }

    /// Records a rejected request: its method, its path with the query, and the reason.
    pub fn record(&mut self, method: &str, target: &str, refusal: &ApiError) {
        let rejected = RejectedRequest {
            node: self.node.clone(),
            request: truncate(&format!("{method} {target}")),
            status: refusal.code(),
            message: truncate(&refusal.to_string()),
            times: 1,
        };
        let mut kept = self.requests.iter_mut();
        if let Some(existing) = kept.find(|known| known.is_same_rejection(&rejected)) {
            existing.times = existing.times.saturating_add(1);
        } else if self.requests.len() < MAX_REQUESTS {
            self.requests.push(rejected);
        } else {
            self.missed = self.missed.saturating_add(1);
        }
    }

    /// Returns the recorded requests, each once.
    #[must_use]
    pub fn requests(&self) -> &[RejectedRequest] {
        &self.requests
    }

    /// Returns the number of further requests that were not recorded.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        self.missed
    }
}

/// Truncates a text to the maximum length.
fn truncate(text: &str) -> String {
    match text.char_indices().nth(MAX_LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::parse_request;
    use super::*;

    fn refused(requests: &[(&str, &str)]) -> RejectedRequests {
        let mut refusals = RejectedRequests::new("node-1");
        for (method, target) in requests {
            refusals.record(method, target, &parse_request(method, target).unwrap_err());
        }
        refusals
    }

    #[test]
    fn rejected_requests_count_repeated_requests_once() {
        let refusals = refused(&[
            ("GET", "/api/v1/pods?watch=true&timeoutSeconds=301"),
            ("DELETE", "/api/v1/services"),
            ("GET", "/api/v1/pods?watch=true&timeoutSeconds=302"),
            ("GET", "/api/v1/pods?watch=true&timeoutSeconds=303"),
            ("GET", "/api/v1/pods"),
        ]);
        let recorded: Vec<(String, u64)> = refusals
            .requests()
            .iter()
            .map(|refused| (refused.to_string(), refused.times))
            .collect();
        let expected = [
            (
                "GET /api/v1/pods?watch=true&timeoutSeconds=301: 404, /api/v1/pods is not served",
                3,
            ),
            (
                "DELETE /api/v1/services: 405, DELETE of /api/v1/services is not served",
                1,
            ),
            ("GET /api/v1/pods: 404, /api/v1/pods is not served", 1),
        ];
        assert_eq!(
            recorded,
            expected.map(|(words, times)| (words.to_owned(), times))
        );
        assert!(
            refusals
                .requests()
                .iter()
                .all(|refused| refused.node == "node-1")
        );
        assert_eq!(refusals.missed(), 0);
    }

    #[test]
    fn rejected_requests_above_limit_are_counted() {
        let mut refusals = RejectedRequests::new("node-1");
        let refuse = |refusals: &mut RejectedRequests, number: usize| {
            let target = format!("/{number}");
            let refusal = ApiError::NotFound(target.clone());
            refusals.record("GET", &target, &refusal);
        };
        for number in 0..MAX_REQUESTS + 3 {
            refuse(&mut refusals, number);
        }
        // A recorded request is counted even when the record is full.
        refuse(&mut refusals, 0);
        assert_eq!(
            (refusals.requests().len(), refusals.missed()),
            (MAX_REQUESTS, 3)
        );
        assert_eq!(refusals.requests()[0].times, 2);
    }

    #[test]
    fn rejected_requests_truncate_long_requests() {
        let target = format!("/{}€", "é".repeat(70_000));
        let mut refusals = RejectedRequests::new("node-1");
        refusals.record("GET", &target, &ApiError::NotFound(target.clone()));
        let [refused] = refusals.requests() else {
            panic!("{refusals:?}")
        };
        assert_eq!(refused.request.chars().count(), MAX_LENGTH + 1);
        assert!(refused.request.starts_with("GET /éé") && refused.request.ends_with("é…"));
        assert!(refused.message.chars().count() <= MAX_LENGTH + 1);
    }
}
