//! Answers requests from the objects of a store.

use serde_json::{Value, json};

use super::convert;
use super::request::{Ask, Refusal, Scope, Verb};
use super::resource::{Form, Resource};
use super::store::Store;
use super::watch::Watch;

/// Response to one request.
#[derive(Debug)]
pub enum Answer {
    /// Complete document.
    Whole {
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

impl From<&Refusal> for Answer {
    fn from(refusal: &Refusal) -> Self {
        Self::Whole {
            code: refusal.code(),
            body: status(refusal),
        }
    }
}

/// Returns an error as a Kubernetes `Status` object.
pub(super) fn status(refusal: &Refusal) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refusal.to_string(),
        "reason": refusal.reason(),
        "code": refusal.code(),
    })
}

/// Answers a request from the objects of a store.
///
/// # Errors
///
/// Returns [`Refusal::NoObject`] if the requested object does not exist.
pub fn answer(store: &Store, ask: Ask) -> Result<Answer, Refusal> {
    let whole = |code, body| Answer::Whole { code, body };
    Ok(match ask {
        Ask::Health => whole(200, json!("ok")),
        Ask::Version => whole(
            200,
            json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0"}),
        ),
        Ask::Event {
            api_version,
            namespace,
        } => whole(
            201,
            json!({
                "kind": "Event",
                "apiVersion": api_version,
                "metadata": {"name": "svclab", "namespace": namespace},
            }),
        ),
        Ask::Objects { form, scope, verb } => match verb {
            Verb::Get => whole(200, named(store, form, &scope)?),
            Verb::List { labels, fields } => {
                let admitted = |object: &&Value| {
                    within(object, &scope) && labels.admits(object) && fields.admits(object)
                };
                let items: Vec<Value> = store
                    .objects(form.resource)
                    .filter(admitted)
                    .map(|object| shaped(object, form))
                    .collect();
                whole(
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
                since,
                initial,
                bookmarks,
                seconds,
            } => {
                let watch = Watch::new(form, scope, labels, fields);
                Answer::Stream {
                    watch: match since {
                        Some(version) if !initial => watch.since(version),
                        _ => watch.and_what_there_is(initial && bookmarks),
                    },
                    seconds,
                }
            }
        },
    })
}

fn named(store: &Store, form: Form, scope: &Scope) -> Result<Value, Refusal> {
    let name = scope.name.as_deref().unwrap_or_default();
    let namespace = scope.namespace.as_deref().unwrap_or_default();
    store
        .object(form.resource, namespace, name)
        .map(|object| shaped(object, form))
        .ok_or_else(|| Refusal::NoObject {
            resource: form.resource.kind(),
            name: name.to_owned(),
        })
}

/// Whether an object is in the namespace of a request.
pub(super) fn within(object: &Value, scope: &Scope) -> bool {
    scope.namespace.as_deref().is_none_or(|namespace| {
        let own = object.pointer("/metadata/namespace");
        own.and_then(Value::as_str) == Some(namespace)
    })
}

/// Returns an object in the requested API version.
pub(super) fn shaped(object: &Value, form: Form) -> Value {
    if form.resource == Resource::EndpointSlices {
        return convert::slice(object, form.api_version);
    }
    let mut object = object.clone();
    object["apiVersion"] = json!(form.api_version);
    object
}

#[cfg(test)]
mod tests {
    use super::super::request::ask;
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

    fn whole(target: &str) -> (u16, Value) {
        let answered = ask("GET", target).and_then(|asked| answer(&store(), asked));
        match answered.unwrap_or_else(|refusal| Answer::from(&refusal)) {
            Answer::Whole { code, body } => (code, body),
            Answer::Stream { .. } => panic!("{target} is a watch"),
        }
    }

    #[test]
    fn a_list_holds_what_is_selected_and_says_how_new_it_is() {
        let (code, list) =
            whole("/api/v1/services?labelSelector=%21service.kubernetes.io%2Fservice-proxy-name");
        assert_eq!(code, 200);
        assert_eq!(list["kind"], "ServiceList");
        // Three objects, and the two `Endpoints` that the store makes for services.
        assert_eq!(list["metadata"]["resourceVersion"], "6");
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), 1);
        assert_eq!(items[0]["metadata"]["resourceVersion"], "3");
        let (_, elsewhere) = whole("/api/v1/namespaces/other/services");
        assert_eq!(elsewhere["items"], json!([]));
    }

    #[test]
    fn an_object_is_given_by_its_name_or_it_is_told_that_there_is_none() {
        let (code, node) = whole("/api/v1/nodes/node-a");
        assert_eq!((code, &node["metadata"]["name"]), (200, &json!("node-a")));
        let (code, service) = whole("/api/v1/namespaces/default/services/a");
        assert_eq!((code, &service["kind"]), (200, &json!("Service")));
        let (code, refused) = whole("/api/v1/nodes/node-b");
        assert_eq!(code, 404);
        assert_eq!(
            (&refused["reason"], &refused["message"]),
            (&json!("NotFound"), &json!("Node \"node-b\" not found"))
        );
    }

    /// `tests/recorded/kube-proxy` describes how the requests were recorded.
    #[test]
    fn nothing_that_kube_proxies_were_seen_to_ask_is_refused() {
        let requests = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/recorded/kube-proxy/requests"
        );
        let mut asked_in_all = 0;
        for file in std::fs::read_dir(requests).unwrap() {
            let path = file.unwrap().path();
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let (method, target) = line.split_once(' ').unwrap();
                let answered = ask(method, target).and_then(|asked| answer(&store(), asked));
                assert!(answered.is_ok(), "{}: {line}: {answered:?}", path.display());
                asked_in_all += 1;
            }
        }
        assert!(asked_in_all > 40, "{asked_in_all}");
    }
}
