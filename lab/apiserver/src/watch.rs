//! Computes the watch events for one client since the previous call.

use serde_json::{Value, json};

use super::changes::ObjectChange;
use super::object::{in_version, is_in_namespace, status_object};
use super::request::{ApiError, RequestScope};
use super::resource::VersionedResource;
use super::selector::{FieldSelector, LabelSelector};
use super::store::Store;

/// Annotation of the bookmark that follows the initial objects.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// Watch of one client on one collection.
///
/// The client gets ADDED for an object that starts to match the selectors. It gets DELETED for an
/// object that no longer matches. (kubernetes v1.36
/// `staging/src/k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go`, `convertToWatchEvent`)
#[derive(Debug)]
pub struct Watch {
    form: VersionedResource,
    scope: RequestScope,
    labels: LabelSelector,
    fields: FieldSelector,
    position: WatchPosition,
    ended: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum WatchPosition {
    /// No events were sent.
    Start {
        /// Whether a bookmark follows the initial objects.
        bookmark: bool,
    },
    /// All events up to this version were sent.
    Version(u64),
}

impl Watch {
    pub(super) fn new(
        form: VersionedResource,
        scope: RequestScope,
        labels: LabelSelector,
        fields: FieldSelector,
    ) -> Self {
        Self {
            form,
            scope,
            labels,
            fields,
            position: WatchPosition::Start { bookmark: false },
            ended: false,
        }
    }

    pub(super) fn since(self, version: u64) -> Self {
        Self {
            position: WatchPosition::Version(version),
            ..self
        }
    }

    pub(super) fn with_initial_objects(self, bookmark: bool) -> Self {
        Self {
            position: WatchPosition::Start { bookmark },
            ..self
        }
    }

    /// Whether the watch has ended. The client received an error and must list again.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the events since the previous call.
    pub fn next_events(&mut self, store: &Store) -> Vec<Value> {
        if self.ended {
            return Vec::new();
        }
        let events = match self.position {
            WatchPosition::Start { bookmark: marked } => self.initial_events(store, marked),
            WatchPosition::Version(version) => {
                let Some(changes) = store.changes_since(version) else {
                    self.ended = true;
                    let expired = status_object(&ApiError::Expired(version));
                    return vec![json!({"type": "ERROR", "object": expired})];
                };
                changes
                    .filter(|change| change.resource == self.form.resource)
                    .filter_map(|change| self.event_for_change(&change.change))
                    .collect()
            }
        };
        self.position = WatchPosition::Version(store.version());
        events
    }

    fn initial_events(&self, store: &Store, marked: bool) -> Vec<Value> {
        let mut events: Vec<Value> = store
            .objects(self.form.resource)
            .filter(|object| self.matches(object))
            .map(|object| self.render_event("ADDED", object))
            .collect();
        if marked {
            let metadata = json!({
                "resourceVersion": store.version().to_string(),
                "annotations": {INITIAL_END: "true"},
            });
            let object = json!({
                "kind": self.form.resource.kind(),
                "apiVersion": self.form.api_version,
                "metadata": metadata,
            });
            events.push(json!({"type": "BOOKMARK", "object": object}));
        }
        events
    }

    fn event_for_change(&self, change: &ObjectChange) -> Option<Value> {
        match change {
            ObjectChange::Added(object) => self
                .matches(object)
                .then(|| self.render_event("ADDED", object)),
            ObjectChange::Deleted(object) => self
                .matches(object)
                .then(|| self.render_event("DELETED", object)),
            ObjectChange::Modified { before, after } => {
                match (self.matches(before), self.matches(after)) {
                    (true, true) => Some(self.render_event("MODIFIED", after)),
                    (false, true) => Some(self.render_event("ADDED", after)),
                    (true, false) => {
                        // The last matching object, with the version at which it stopped matching.
                        let mut object = before.clone();
                        object["metadata"]["resourceVersion"] =
                            after["metadata"]["resourceVersion"].clone();
                        Some(self.render_event("DELETED", &object))
                    }
                    (false, false) => None,
                }
            }
        }
    }

    fn matches(&self, object: &Value) -> bool {
        is_in_namespace(object, &self.scope)
            && self.labels.matches(object)
            && self.fields.matches(object)
    }

    fn render_event(&self, event_type: &str, object: &Value) -> Value {
        json!({"type": event_type, "object": in_version(object, self.form)})
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::parse_request;
    use super::super::{ApiResponse, respond};
    use super::*;

    fn service(name: &str, proxy: Option<&str>, ip: &str) -> Value {
        let mut object = json!({
            "kind": "Service", "metadata": {"name": name}, "spec": {"clusterIP": ip},
        });
        if let Some(proxy) = proxy {
            object["metadata"]["labels"] =
                json!({"service.kubernetes.io/service-proxy-name": proxy});
        }
        object
    }

    fn watch(store: &Store, query: &str) -> Watch {
        let label = "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name";
        let target = format!("/api/v1/services?{label}&watch=true&{query}");
        match respond(store, parse_request("GET", &target).unwrap()).unwrap() {
            ApiResponse::Stream { watch, .. } => watch,
            ApiResponse::Document { .. } => panic!("{target} is not a watch"),
        }
    }

    fn next_event_names(watch: &mut Watch, store: &Store) -> Vec<String> {
        let events = watch.next_events(store);
        let text = |event: &Value, pointer: &str| {
            let found = event.pointer(pointer).and_then(Value::as_str);
            found.unwrap_or("-").to_owned()
        };
        events
            .iter()
            .map(|event| {
                let (event_type, name) =
                    (text(event, "/type"), text(event, "/object/metadata/name"));
                format!("{event_type} {name}")
            })
            .collect()
    }

    #[test]
    fn watch_reports_objects_that_start_or_stop_matching() {
        let mut store = Store::new();
        store
            .replace(vec![
                service("a", None, "10.0.0.1"),
                service("b", Some("x"), "10.0.0.2"),
            ])
            .unwrap();
        let from = format!("resourceVersion={}", store.version());
        let mut watch = watch(&store, &from);
        assert!(next_event_names(&mut watch, &store).is_empty());
        store
            .replace(vec![
                service("a", Some("x"), "10.0.0.1"),
                service("b", None, "10.0.0.2"),
                service("c", None, "10.0.0.3"),
            ])
            .unwrap();
        assert_eq!(
            next_event_names(&mut watch, &store),
            ["DELETED a", "ADDED b", "ADDED c"]
        );
        store
            .replace(vec![
                service("b", None, "10.0.0.9"),
                service("a", Some("y"), "10.0.0.1"),
            ])
            .unwrap();
        assert_eq!(
            next_event_names(&mut watch, &store),
            ["DELETED c", "MODIFIED b"]
        );
        assert!(next_event_names(&mut watch, &store).is_empty());
    }

    #[test]
    fn watch_with_initial_events_ends_list_with_bookmark() {
        let mut store = Store::new();
        store.replace(vec![service("a", None, "10.0.0.1")]).unwrap();
        let streamed =
            "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
        let mut streamed = watch(&store, streamed);
        let events = streamed.next_events(&store);
        assert_eq!(events[0]["type"], "ADDED");
        assert_eq!(
            events[1],
            json!({"type": "BOOKMARK", "object": {
                "kind": "Service",
                "apiVersion": "v1",
                "metadata": {
                    "resourceVersion": store.version().to_string(),
                    "annotations": {"k8s.io/initial-events-end": "true"},
                },
            }})
        );
        let mut plain = watch(&store, "resourceVersion=0");
        assert_eq!(next_event_names(&mut plain, &store), ["ADDED a"]);
    }

    #[test]
    fn watch_from_largest_version_returns_no_events() {
        let store = Store::new();
        let mut watch = watch(&store, &format!("resourceVersion={}", u64::MAX));
        assert!(next_event_names(&mut watch, &store).is_empty());
    }

    #[test]
    fn watch_from_expired_version_returns_error_event() {
        let mut store = Store::new();
        let mut late = watch(&store, "resourceVersion=1");
        for round in 0..20_000 {
            let ip = format!("10.0.{}.{}", round / 250, round % 250);
            store.replace(vec![service("a", None, &ip)]).unwrap();
        }
        let events = late.next_events(&store);
        assert_eq!(events[0]["type"], "ERROR");
        assert_eq!(events[0]["object"]["code"], 410);
        assert_eq!(
            events[0]["object"]["message"],
            "too old resource version: 1"
        );
        assert!(late.has_ended() && late.next_events(&store).is_empty());
    }
}
