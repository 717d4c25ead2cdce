//! Parses requests. Input: the method and the target of an HTTP request.

use std::borrow::Cow;

use thiserror::Error;

use super::resource::VersionedResource;
use super::selector::{FieldSelector, LabelSelector, SelectorError};

/// Parsed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiRequest {
    /// Access to objects.
    Objects {
        /// Requested resource and its API version.
        form: VersionedResource,
        /// Namespace and name in the path.
        scope: RequestScope,
        /// Operation on the objects.
        verb: Verb,
    },
    /// Creation or update of an event. The server does not store events.
    Event {
        /// `v1`, `events.k8s.io/v1` or `events.k8s.io/v1beta1`.
        api_version: String,
        /// Namespace of the event.
        namespace: String,
    },
    /// Health check of the server.
    Health,
    /// Request for the version of the server.
    Version,
}

/// Objects of a resource that the path selects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestScope {
    /// Namespace in the path. `None` selects all namespaces.
    pub namespace: Option<String>,
    /// Object name in the path. `None` selects the collection.
    pub name: Option<String>,
}

/// Operation on objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    /// Returns the object that the path names.
    Get,
    /// Lists the selected objects.
    List {
        /// Selector for labels.
        labels: LabelSelector,
        /// Selector for fields.
        fields: FieldSelector,
    },
    /// Streams changes of the selected objects.
    Watch {
        /// Selector for labels.
        labels: LabelSelector,
        /// Selector for fields.
        fields: FieldSelector,
        /// Version to start from. `None` starts with the current objects.
        from_version: Option<u64>,
        /// Whether to start with the current objects and to mark their end.
        send_initial: bool,
        /// Whether the client accepts bookmarks.
        accepts_bookmarks: bool,
        /// Duration of the watch in seconds. `None` has no limit.
        timeout_seconds: Option<u64>,
    },
}

/// Error response with a status and a reason, as Kubernetes defines them.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ApiError {
    /// The path is not served.
    #[error("{0} is not served")]
    NotFound(String),
    /// The object does not exist.
    #[error("{resource} \"{name}\" not found")]
    ObjectNotFound {
        /// Kind of the object.
        resource: &'static str,
        /// Name of the object.
        name: String,
    },
    /// The method is not supported for this path.
    #[error("{method} of {path} is not served")]
    MethodNotAllowed {
        /// HTTP method of the request.
        method: String,
        /// Path of the request.
        path: String,
    },
    /// A selector in the query is invalid.
    #[error("{0}")]
    InvalidSelector(#[from] SelectorError),
    /// A parameter in the query is not a number.
    #[error("{name}={value} is not a number")]
    InvalidNumber {
        /// Name of the parameter.
        name: &'static str,
        /// Value of the parameter.
        value: String,
    },
    /// The body of the request exceeds the limit, in bytes.
    #[error("the request body is larger than {0} bytes")]
    TooLarge(usize),
    /// The changes since this version are no longer stored.
    #[error("too old resource version: {0}")]
    Expired(u64),
}

impl ApiError {
    /// Returns the HTTP status.
    #[must_use]
    pub const fn code(&self) -> u16 {
        match self {
            Self::NotFound(_) | Self::ObjectNotFound { .. } => 404,
            Self::MethodNotAllowed { .. } => 405,
            Self::InvalidSelector(_) | Self::InvalidNumber { .. } => 400,
            Self::Expired(_) => 410,
            Self::TooLarge(_) => 413,
        }
    }

    /// Returns the reason as Kubernetes names it.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotFound(_) | Self::ObjectNotFound { .. } => "NotFound",
            Self::MethodNotAllowed { .. } => "MethodNotAllowed",
            Self::InvalidSelector(_) | Self::InvalidNumber { .. } => "BadRequest",
            Self::Expired(_) => "Expired",
            Self::TooLarge(_) => "RequestEntityTooLarge",
        }
    }
}

/// Parses a request from its method and its target, which is the path with the query.
///
/// # Errors
///
/// Returns an [`ApiError`] if the path or method is not served, or if the query is invalid.
pub fn parse_request(method: &str, target: &str) -> Result<ApiRequest, ApiError> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let not_found = || ApiError::NotFound(path.to_owned());
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (api_version, rest) = match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => return Ok(ApiRequest::Health),
        ["version"] => return Ok(ApiRequest::Version),
        ["api", version, rest @ ..] => ((*version).to_owned(), rest),
        ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
        _ => return Err(not_found()),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        rest => (None, rest),
    };
    if let (["events", ..], Some(namespace)) = (rest, namespace)
        && ["v1", "events.k8s.io/v1", "events.k8s.io/v1beta1"].contains(&api_version.as_str())
        && matches!(method, "POST" | "PATCH" | "PUT")
    {
        return Ok(ApiRequest::Event {
            api_version,
            namespace: namespace.to_owned(),
        });
    }
    let (plural, name) = match rest {
        [plural] => (*plural, None),
        [plural, name] => (*plural, Some((*name).to_owned())),
        _ => return Err(not_found()),
    };
    let form = VersionedResource::find(&api_version, plural).ok_or_else(not_found)?;
    if method != "GET" {
        return Err(ApiError::MethodNotAllowed {
            method: method.to_owned(),
            path: path.to_owned(),
        });
    }
    let scope = RequestScope {
        namespace: namespace.map(str::to_owned),
        name,
    };
    let verb = if scope.name.is_some() {
        Verb::Get
    } else {
        parse_collection_query(query)?
    };
    Ok(ApiRequest::Objects { form, scope, verb })
}

/// Parses the query of a request for a collection.
fn parse_collection_query(query: &str) -> Result<Verb, ApiError> {
    let value = |name: &str| find_parameter(query, name);
    let is_true = |name: &str| value(name).is_some_and(|value| value == "true" || value == "1");
    let number = |name: &'static str| match value(name).filter(|value| !value.is_empty()) {
        None => Ok(None),
        Some(value) => value
            .parse::<u64>()
            .map(Some)
            .map_err(|_| ApiError::InvalidNumber {
                name,
                value: value.into_owned(),
            }),
    };
    let labels = LabelSelector::parse(&value("labelSelector").unwrap_or_default())?;
    let fields = FieldSelector::parse(&value("fieldSelector").unwrap_or_default())?;
    if !is_true("watch") {
        return Ok(Verb::List { labels, fields });
    }
    Ok(Verb::Watch {
        labels,
        fields,
        from_version: number("resourceVersion")?.filter(|version| *version != 0),
        send_initial: is_true("sendInitialEvents"),
        accepts_bookmarks: is_true("allowWatchBookmarks"),
        timeout_seconds: number("timeoutSeconds")?,
    })
}

/// Returns the decoded value of the first parameter with a name.
fn find_parameter<'q>(query: &'q str, name: &str) -> Option<Cow<'q, str>> {
    form_urlencoded::parse(query.as_bytes())
        .find(|(key, _)| key == name)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Resource;

    /// Requests recorded from kube-proxy 1.18.2, 1.20.2 and 1.36.2.
    #[test]
    fn parse_request_recorded_requests_are_understood() {
        let node = parse_request("GET", "/api/v1/nodes/node-a").unwrap();
        let ApiRequest::Objects { form, scope, verb } = node else {
            panic!("{node:?}")
        };
        assert_eq!((form.resource, verb), (Resource::Nodes, Verb::Get));
        assert_eq!(scope.name.as_deref(), Some("node-a"));

        let labels =
            "%21service.kubernetes.io%2Fheadless%2C%21service.kubernetes.io%2Fservice-proxy-name";
        let selector = LabelSelector::parse(
            "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name",
        )
        .unwrap();
        let list = format!(
            "/apis/discovery.k8s.io/v1beta1/endpointslices?labelSelector={labels}&limit=500&resourceVersion=0"
        );
        let request = parse_request("GET", &list).unwrap();
        assert_eq!(
            request,
            ApiRequest::Objects {
                form: VersionedResource {
                    resource: Resource::EndpointSlices,
                    api_version: "discovery.k8s.io/v1beta1"
                },
                scope: RequestScope::default(),
                verb: Verb::List {
                    labels: selector.clone(),
                    fields: FieldSelector::default()
                },
            }
        );
        let watch = format!(
            "/api/v1/endpoints?allowWatchBookmarks=true&labelSelector={labels}&resourceVersion=106&timeout=6m13s&timeoutSeconds=373&watch=true"
        );
        let Ok(ApiRequest::Objects { verb, .. }) = parse_request("GET", &watch) else {
            panic!("{watch}")
        };
        assert_eq!(
            verb,
            Verb::Watch {
                labels: selector,
                fields: FieldSelector::default(),
                from_version: Some(106),
                send_initial: false,
                accepts_bookmarks: true,
                timeout_seconds: Some(373),
            }
        );
        let streamed = "/api/v1/nodes?allowWatchBookmarks=true&fieldSelector=metadata.name%3Dnode-a&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeout=6m7s&timeoutSeconds=367&watch=true";
        let Ok(ApiRequest::Objects { verb, .. }) = parse_request("GET", streamed) else {
            panic!("{streamed}")
        };
        assert_eq!(
            verb,
            Verb::Watch {
                labels: LabelSelector::default(),
                fields: FieldSelector::parse("metadata.name=node-a").unwrap(),
                from_version: None,
                send_initial: true,
                accepts_bookmarks: true,
                timeout_seconds: Some(367),
            }
        );
        for events in [
            "/api/v1/namespaces/default/events",
            "/apis/events.k8s.io/v1/namespaces/default/events",
        ] {
            assert!(matches!(
                parse_request("POST", events),
                Ok(ApiRequest::Event { .. })
            ));
        }
    }

    #[test]
    fn parse_request_unsupported_request_returns_error() {
        for (method, target, code, message) in [
            ("GET", "/api/v1/pods", 404, "/api/v1/pods is not served"),
            ("GET", "/", 404, "/ is not served"),
            (
                "GET",
                "/apis/discovery.k8s.io/v2/endpointslices?watch=true",
                404,
                "/apis/discovery.k8s.io/v2/endpointslices is not served",
            ),
            (
                "DELETE",
                "/api/v1/services",
                405,
                "DELETE of /api/v1/services is not served",
            ),
            (
                "GET",
                "/api/v1/services?watch=true&resourceVersion=new",
                400,
                "resourceVersion=new is not a number",
            ),
            (
                "GET",
                "/api/v1/services?labelSelector=a+b",
                400,
                "`a b` is not a valid label selector term",
            ),
        ] {
            let refusal = parse_request(method, target).unwrap_err();
            assert_eq!(
                (refusal.code(), refusal.to_string().as_str()),
                (code, message)
            );
        }
    }

    #[test]
    fn find_parameter_accepts_invalid_escapes() {
        for (text, expected) in [
            ("a%2Cb", "a,b"),
            ("%", "%"),
            ("%2", "%2"),
            ("%zz+%", "%zz %"),
            ("%e2%82%ac", "€"),
        ] {
            let query = format!("before=1&name={text}&name=2");
            assert_eq!(find_parameter(&query, "name").unwrap(), expected);
        }
    }
}
