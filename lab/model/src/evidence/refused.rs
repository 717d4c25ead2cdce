//! Defines the requests that the API server of a node rejected.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Query parameters that vary between otherwise equal requests of a client. The timeouts are
/// random, and the version is that of the latest object (kubernetes at 000c6651b281,
/// `staging/src/k8s.io/client-go/tools/cache/reflector.go`, `minWatchTimeout`).
const VARIES: [&str; 3] = ["timeout", "timeoutSeconds", "resourceVersion"];

/// Request that an API server rejected, with the number of times. The requests of a node come from
/// kube-proxy and from programs that a user runs there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Refused {
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

impl Refused {
    /// Whether `other` is the same request with the same status. The nodes may differ.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.status == other.status && is_same(&self.request, &other.request)
    }

    /// Formats the number of times: `once`, `3 times`.
    #[must_use]
    pub fn how_often(&self) -> String {
        match self.times {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        }
    }
}

/// Adds requests from another period. The result lists each request of a node once.
pub fn add(all: &mut Vec<Refused>, more: &[Refused]) {
    for refused in more {
        let mut known = all.iter_mut();
        match known.find(|known| known.node == refused.node && known.is_like(refused)) {
            Some(known) => known.times = known.times.saturating_add(refused.times),
            None => all.push(refused.clone()),
        }
    }
}

/// Formats the request and the response: `GET /api/v1/pods: 404, /api/v1/pods is not served`.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {}", self.request, self.status, self.message)
    }
}

/// Whether two requests are equal apart from varying query parameters.
fn is_same(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(|request| {
        let (path, query) = request.split_once('?').unwrap_or((request, ""));
        let lasting = query.split('&').filter(|pair| {
            let name = pair.split('=').next();
            name.is_some_and(|name| !name.is_empty() && !VARIES.contains(&name))
        });
        (path, lasting)
    });
    one.0 == other.0 && one.1.eq(other.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_the_same_for_another_time() {
        let first = "GET /apis/a/v1/b?allowWatchBookmarks=true&resourceVersion=106&timeout=6m22s&timeoutSeconds=382&watch=true";
        let later = "GET /apis/a/v1/b?allowWatchBookmarks=true&resourceVersion=110&timeout=9m1s&timeoutSeconds=541&watch=true";
        assert!(is_same(first, later));
        assert!(is_same("GET /a", "GET /a?resourceVersion=0"));
        for other in [
            "GET /apis/a/v1/c?allowWatchBookmarks=true&watch=true",
            "GET /apis/a/v1/b?allowWatchBookmarks=true",
            "POST /apis/a/v1/b?allowWatchBookmarks=true&watch=true",
            "GET /apis/a/v1/b",
        ] {
            assert!(!is_same(first, other), "{other}");
        }
    }

    #[test]
    fn what_was_refused_otherwise_is_another() {
        let refused = Refused {
            node: "node-1".to_owned(),
            request: "GET /api/v1/pods?timeout=1s".to_owned(),
            status: 404,
            message: "/api/v1/pods is not served".to_owned(),
            times: 2,
        };
        let elsewhere = Refused {
            node: "node-2".to_owned(),
            request: "GET /api/v1/pods?timeout=2s".to_owned(),
            times: 1,
            ..refused.clone()
        };
        assert!(refused.is_like(&elsewhere));
        assert!(!refused.is_like(&Refused {
            status: 400,
            ..elsewhere.clone()
        }));
        assert_eq!(
            refused.to_string(),
            "GET /api/v1/pods?timeout=1s: 404, /api/v1/pods is not served"
        );
        let mut all = Vec::new();
        add(&mut all, &[refused.clone(), elsewhere.clone()]);
        add(&mut all, std::slice::from_ref(&elsewhere));
        let told: Vec<(&str, u64)> = all
            .iter()
            .map(|one| (one.node.as_str(), one.times))
            .collect();
        assert_eq!(told, [("node-1", 2), ("node-2", 2)]);
        assert_eq!(refused.how_often(), "2 times");
        assert_eq!(elsewhere.how_often(), "once");
    }
}
