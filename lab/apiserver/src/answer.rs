//! Answers requests from the objects of a store.

use serde_json::{Value, json};

use super::object::{in_version, is_in_namespace, status_object};
use super::request::{ApiError, ApiRequest, RequestScope, Verb};
use super::resource::VersionedResource;
use super::store::Store;
use super::watch::Watch;

/// Response to one request.
#[derive(Debug)]
pub enum ApiResponse {
    /// Complete document.
    Document {
        /// HTTP status of the response.
        code: u16,
        /// JSON body of the response.
        body: Value,
    },
    /// Stream of watch events.
    Stream {
        /// Watch that produces the events.
        watch: Watch,
        /// Duration of the stream in seconds. `None` lets it run until the client disconnects.
        seconds: Option<u64>,
    },
}

impl From<&ApiError> for ApiResponse {
    fn from(refusal: &ApiError) -> Self {
        Self::Document {
            code: refusal.code(),
            body: status_object(refusal),
        }
    }
}

/// Answers a request from the objects of a store.
///
/// # Errors
///
/// Returns [`ApiError::ObjectNotFound`] if the requested object does not exist.
pub fn respond(store: &Store, request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let document = |code, body| ApiResponse::Document { code, body };
    Ok(match request {
        ApiRequest::Health => document(200, json!("ok")),
        ApiRequest::Version => document(
            200,
            json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0"}),
        ),
        ApiRequest::Event {
            api_version,
            namespace,
        } => document(
            201,
            json!({
                "kind": "Event",
                "apiVersion": api_version,
                "metadata": {"name": "svclab", "namespace": namespace},
            }),
        ),
        ApiRequest::Objects { form, scope, verb } => match verb {
            Verb::Get => document(200, find_object(store, form, &scope)?),
            Verb::List { labels, fields } => {
                let is_selected = |object: &&Value| {
                    is_in_namespace(object, &scope)
                        && labels.matches(object)
                        && fields.matches(object)
                };
                let items: Vec<Value> = store
                    .objects(form.resource)
                    .filter(is_selected)
                    .map(|object| in_version(object, form))
                    .collect();
                document(
                    200,
                    json!({
                        "kind": format!("{}List", form.resource.kind()),
                        "apiVersion": form.api_version,
                        "metadata": {"resourceVersion": store.version().to_string()},
                        "items": items,
                    }),
                )
            }
            Verb::Watch {
                labels,
                fields,
                from_version: since,
                send_initial: initial,
                accepts_bookmarks: bookmarks,
                timeout_seconds: seconds,
            } => {
                let watch = Watch::new(form, scope, labels, fields);
                ApiResponse::Stream {
                    watch: match since {
                        Some(version) if !initial => watch.since(version),
                        _ => watch.with_initial_objects(initial && bookmarks),
                    },
                    seconds,
                }
            }
        },
    })
}

fn find_object(
    store: &Store,
    form: VersionedResource,
    scope: &RequestScope,
) -> Result<Value, ApiError> {
    let name = scope.name.as_deref().unwrap_or_default();
    let namespace = scope.namespace.as_deref().unwrap_or_default();
    store
        .object(form.resource, namespace, name)
        .map(|object| in_version(object, form))
        .ok_or_else(|| ApiError::ObjectNotFound {
            resource: form.resource.kind(),
            name: name.to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::super::request::parse_request;
    use super::*;

    fn store() -> Store {
        let mut store = Store::new();
        let label = "service.kubernetes.io/service-proxy-name";
        store
            .replace(vec![
                json!({"kind": "Node", "metadata": {"name": "node-a"}}),
                json!({"kind": "Service", "metadata": {"name": "a"}, "spec": {"clusterIP": "10.0.0.1"}}),
                json!({"kind": "Service", "metadata": {"name": "b", "labels": {label: "x"}}, "spec": {}}),
            ])
            .unwrap();
        store
    }

    fn get_document(target: &str) -> (u16, Value) {
        let response = parse_request("GET", target).and_then(|asked| respond(&store(), asked));
        match response.unwrap_or_else(|refusal| ApiResponse::from(&refusal)) {
            ApiResponse::Document { code, body } => (code, body),
            ApiResponse::Stream { .. } => panic!("{target} is a watch"),
        }
    }

    #[test]
    fn respond_list_contains_selected_objects_and_version() {
        let (code, list) = get_document(
            "/api/v1/services?labelSelector=%21service.kubernetes.io%2Fservice-proxy-name",
        );
        assert_eq!(code, 200);
        assert_eq!(list["kind"], "ServiceList");
        // Three objects, and the two `Endpoints` that the store makes for services.
        assert_eq!(list["metadata"]["resourceVersion"], "6");
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), 1);
        assert_eq!(items[0]["metadata"]["resourceVersion"], "3");
        let (_, elsewhere) = get_document("/api/v1/namespaces/other/services");
        assert_eq!(elsewhere["items"], json!([]));
    }

    #[test]
    fn respond_get_returns_object_or_not_found() {
        let (code, node) = get_document("/api/v1/nodes/node-a");
        assert_eq!((code, &node["metadata"]["name"]), (200, &json!("node-a")));
        let (code, service) = get_document("/api/v1/namespaces/default/services/a");
        assert_eq!((code, &service["kind"]), (200, &json!("Service")));
        let (code, error) = get_document("/api/v1/nodes/node-b");
        assert_eq!(code, 404);
        assert_eq!(
            (&error["reason"], &error["message"]),
            (&json!("NotFound"), &json!("Node \"node-b\" not found"))
        );
    }

    /// `tests/recorded/kube-proxy` describes how the requests were recorded.
    #[test]
    fn respond_accepts_all_recorded_kube_proxy_requests() {
        let requests = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/recorded/kube-proxy/requests"
        );
        let mut request_count = 0;
        for file in std::fs::read_dir(requests).unwrap() {
            let path = file.unwrap().path();
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let (method, target) = line.split_once(' ').unwrap();
                let response =
                    parse_request(method, target).and_then(|asked| respond(&store(), asked));
                assert!(response.is_ok(), "{}: {line}: {response:?}", path.display());
                request_count += 1;
            }
        }
        assert!(request_count > 40, "{request_count}");
    }
}
