//! Computes the watch events for one client since the previous call.

use serde_json::{Value, json};

use super::answer::{shaped, status, within};
use super::request::{Refusal, Scope};
use super::resource::Form;
use super::selector::{FieldSelector, LabelSelector};
use super::store::{Changed, Store};

/// Annotation of the bookmark that follows the initial objects.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// Watch of one client on one collection.
///
/// The client gets ADDED for an object that starts to match the selectors. It gets DELETED for an
/// object that no longer matches. (kubernetes v1.36
/// `staging/src/k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go`, `convertToWatchEvent`)
#[derive(Debug)]
pub struct Watch {
    form: Form,
    scope: Scope,
    labels: LabelSelector,
    fields: FieldSelector,
    at: At,
    ended: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum At {
    /// No events were sent.
    Beginning {
        /// Whether a bookmark follows the initial objects.
        marked: bool,
    },
    /// All events up to this version were sent.
    Version(u64),
}

impl Watch {
    pub(super) fn new(
        form: Form,
        scope: Scope,
        labels: LabelSelector,
        fields: FieldSelector,
    ) -> Self {
        Self {
            form,
            scope,
            labels,
            fields,
            at: At::Beginning { marked: false },
            ended: false,
        }
    }

    pub(super) fn since(self, version: u64) -> Self {
        Self {
            at: At::Version(version),
            ..self
        }
    }

    pub(super) fn and_what_there_is(self, marked: bool) -> Self {
        Self {
            at: At::Beginning { marked },
            ..self
        }
    }

    /// Whether the watch has ended. The client received an error and must list again.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the events since the previous call.
    pub fn tell(&mut self, store: &Store) -> Vec<Value> {
        if self.ended {
            return Vec::new();
        }
        let events = match self.at {
            At::Beginning { marked } => self.all(store, marked),
            At::Version(version) => {
                let Some(changes) = store.since(version) else {
                    self.ended = true;
                    let expired = status(&Refusal::Expired(version));
                    return vec![json!({"type": "ERROR", "object": expired})];
                };
                changes
                    .filter(|change| change.resource == self.form.resource)
                    .filter_map(|change| self.event(&change.what))
                    .collect()
            }
        };
        self.at = At::Version(store.version());
        events
    }

    fn all(&self, store: &Store, marked: bool) -> Vec<Value> {
        let mut events: Vec<Value> = store
            .objects(self.form.resource)
            .filter(|object| self.admits(object))
            .map(|object| self.told("ADDED", object))
            .collect();
        if marked {
            let about = json!({
                "resourceVersion": store.version().to_string(),
                "annotations": {INITIAL_END: "true"},
            });
            let object = json!({
                "kind": self.form.resource.kind(),
                "apiVersion": self.form.api_version,
                "metadata": about,
            });
            events.push(json!({"type": "BOOKMARK", "object": object}));
        }
        events
    }

    fn event(&self, what: &Changed) -> Option<Value> {
        match what {
            Changed::Added(object) => self.admits(object).then(|| self.told("ADDED", object)),
            Changed::Deleted(object) => self.admits(object).then(|| self.told("DELETED", object)),
            Changed::Modified { before, after } => {
                match (self.admits(before), self.admits(after)) {
                    (true, true) => Some(self.told("MODIFIED", after)),
                    (false, true) => Some(self.told("ADDED", after)),
                    (true, false) => {
                        // The last matching object, with the version at which it stopped matching.
                        let mut object = before.clone();
                        object["metadata"]["resourceVersion"] =
                            after["metadata"]["resourceVersion"].clone();
                        Some(self.told("DELETED", &object))
                    }
                    (false, false) => None,
                }
            }
        }
    }

    fn admits(&self, object: &Value) -> bool {
        within(object, &self.scope) && self.labels.admits(object) && self.fields.admits(object)
    }

    fn told(&self, what: &str, object: &Value) -> Value {
        json!({"type": what, "object": shaped(object, self.form)})
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::ask;
    use super::super::{Answer, answer};
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
        match answer(store, ask("GET", &target).unwrap()).unwrap() {
            Answer::Stream { watch, .. } => watch,
            Answer::Whole { .. } => panic!("{target} is no watch"),
        }
    }

    fn told(watch: &mut Watch, store: &Store) -> Vec<String> {
        let events = watch.tell(store);
        let text = |event: &Value, at: &str| {
            let found = event.pointer(at).and_then(Value::as_str);
            found.unwrap_or("-").to_owned()
        };
        events
            .iter()
            .map(|event| {
                let (what, name) = (text(event, "/type"), text(event, "/object/metadata/name"));
                format!("{what} {name}")
            })
            .collect()
    }

    #[test]
    fn a_watch_tells_what_begins_and_ceases_to_be_selected() {
        let mut store = Store::new();
        store
            .replace(vec![
                service("a", None, "10.0.0.1"),
                service("b", Some("x"), "10.0.0.2"),
            ])
            .unwrap();
        let from = format!("resourceVersion={}", store.version());
        let mut watch = watch(&store, &from);
        assert!(told(&mut watch, &store).is_empty());
        store
            .replace(vec![
                service("a", Some("x"), "10.0.0.1"),
                service("b", None, "10.0.0.2"),
                service("c", None, "10.0.0.3"),
            ])
            .unwrap();
        assert_eq!(
            told(&mut watch, &store),
            ["DELETED a", "ADDED b", "ADDED c"]
        );
        store
            .replace(vec![
                service("b", None, "10.0.0.9"),
                service("a", Some("y"), "10.0.0.1"),
            ])
            .unwrap();
        assert_eq!(told(&mut watch, &store), ["DELETED c", "MODIFIED b"]);
        assert!(told(&mut watch, &store).is_empty());
    }

    #[test]
    fn a_streamed_list_ends_with_a_bookmark() {
        let mut store = Store::new();
        store.replace(vec![service("a", None, "10.0.0.1")]).unwrap();
        let streamed =
            "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
        let mut streamed = watch(&store, streamed);
        let events = streamed.tell(&store);
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
        assert_eq!(told(&mut plain, &store), ["ADDED a"]);
    }

    #[test]
    fn who_comes_too_late_is_told_to_list_anew() {
        let mut store = Store::new();
        let mut late = watch(&store, "resourceVersion=1");
        for round in 0..20_000 {
            let ip = format!("10.0.{}.{}", round / 250, round % 250);
            store.replace(vec![service("a", None, &ip)]).unwrap();
        }
        let events = late.tell(&store);
        assert_eq!(events[0]["type"], "ERROR");
        assert_eq!(events[0]["object"]["code"], 410);
        assert_eq!(
            events[0]["object"]["message"],
            "too old resource version: 1"
        );
        assert!(late.has_ended() && late.tell(&store).is_empty());
    }
}
