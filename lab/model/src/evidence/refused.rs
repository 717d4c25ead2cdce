//! Defines the requests that the API server of a node rejected.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Query parameters that vary between otherwise equal requests of a client. The timeouts are
/// random, and the version is that of the latest object (kubernetes at 000c6651b281,
/// `staging/src/k8s.io/client-go/tools/cache/reflector.go`, `minWatchTimeout`).
const VARYING_PARAMETERS: [&str; 3] = ["timeout", "timeoutSeconds", "resourceVersion"];

/// Request that an API server rejected, with the number of times. The requests of a node come from
/// kube-proxy and from programs that a user runs there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RejectedRequest {
    /// Node of the API server.
    pub node: String,
    /// Method and path with the query of the first request: `GET /api/v1/pods?limit=500`.
    pub request: String,
    /// HTTP status of the response.
    pub status: u16,
    /// Message of the response.
    pub message: String,
    /// Number of times that the request was made.
    pub times: u64,
}

impl RejectedRequest {
    /// Whether `other` is the same request with the same status. The nodes may differ.
    #[must_use]
    pub fn is_same_rejection(&self, other: &Self) -> bool {
        self.status == other.status && is_same_request(&self.request, &other.request)
    }

    /// Formats the number of times: `once`, `3 times`.
    #[must_use]
    pub fn describe_count(&self) -> String {
        match self.times {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        }
    }
}

/// Adds requests from another period. The result lists each request of a node once.
pub fn merge(merged: &mut Vec<RejectedRequest>, additional: &[RejectedRequest]) {
    for refused in additional {
        let mut existing = merged.iter_mut();
        match existing.find(|known| known.node == refused.node && known.is_same_rejection(refused))
        {
            Some(existing) => existing.times = existing.times.saturating_add(refused.times),
            None => merged.push(refused.clone()),
        }
    }
}

/// Formats the request and the response: `GET /api/v1/pods: 404, /api/v1/pods is not served`.
impl fmt::Display for RejectedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {}", self.request, self.status, self.message)
    }
}

/// Whether two requests are equal apart from varying query parameters.
fn is_same_request(left: &str, right: &str) -> bool {
    let [left, right] = [left, right].map(|request| {
        let (path, query) = request.split_once('?').unwrap_or((request, ""));
        let stable_parameters = query.split('&').filter(|pair| {
            let name = pair.split('=').next();
            name.is_some_and(|name| !name.is_empty() && !VARYING_PARAMETERS.contains(&name))
        });
        (path, stable_parameters)
    });
    left.0 == right.0 && left.1.eq(right.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_same_request_ignores_timeout_and_version() {
        let first = "GET /apis/a/v1/b?allowWatchBookmarks=true&resourceVersion=106&timeout=6m22s&timeoutSeconds=382&watch=true";
        let later = "GET /apis/a/v1/b?allowWatchBookmarks=true&resourceVersion=110&timeout=9m1s&timeoutSeconds=541&watch=true";
        assert!(is_same_request(first, later));
        assert!(is_same_request("GET /a", "GET /a?resourceVersion=0"));
        for other in [
            "GET /apis/a/v1/c?allowWatchBookmarks=true&watch=true",
            "GET /apis/a/v1/b?allowWatchBookmarks=true",
            "POST /apis/a/v1/b?allowWatchBookmarks=true&watch=true",
            "GET /apis/a/v1/b",
        ] {
            assert!(!is_same_request(first, other), "{other}");
        }
    }

    #[test]
    fn merge_counts_equal_rejections_by_node() {
        let refused = RejectedRequest {
            node: "node-1".to_owned(),
            request: "GET /api/v1/pods?timeout=1s".to_owned(),
            status: 404,
            message: "/api/v1/pods is not served".to_owned(),
            times: 2,
        };
        let elsewhere = RejectedRequest {
            node: "node-2".to_owned(),
            request: "GET /api/v1/pods?timeout=2s".to_owned(),
            times: 1,
            ..refused.clone()
        };
        assert!(refused.is_same_rejection(&elsewhere));
        assert!(!refused.is_same_rejection(&RejectedRequest {
            status: 400,
            ..elsewhere.clone()
        }));
        assert_eq!(
            refused.to_string(),
            "GET /api/v1/pods?timeout=1s: 404, /api/v1/pods is not served"
        );
        let mut merged = Vec::new();
        merge(&mut merged, &[refused.clone(), elsewhere.clone()]);
        merge(&mut merged, std::slice::from_ref(&elsewhere));
        let counts: Vec<(&str, u64)> = merged
            .iter()
            .map(|request| (request.node.as_str(), request.times))
            .collect();
        assert_eq!(counts, [("node-1", 2), ("node-2", 2)]);
        assert_eq!(refused.describe_count(), "2 times");
        assert_eq!(elsewhere.describe_count(), "once");
    }
}
