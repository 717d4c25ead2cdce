//! Stores the served objects, each with the version of its last change.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use indexmap::IndexMap;
use serde_json::{Value, json};
use thiserror::Error;

use super::changes::{ChangeLog, ObjectChange, StoreEvent};
use super::convert;
use super::resource::Resource;

/// Namespace and name of an object. The namespace is empty for a cluster-scoped resource.
type ObjectKey = (String, String);

/// Objects and their latest changes.
#[derive(Debug, Clone, Default)]
pub struct Store {
    objects: BTreeMap<Resource, IndexMap<ObjectKey, Value>>,
    changes: ChangeLog,
    /// Whether the store makes `Endpoints` from slices.
    makes_endpoints: bool,
    /// Slices by service. A slice that named a service once remains here.
    slices: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
}

/// Error for objects that cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// The kind is not one of the served kinds.
    #[error(
        "cannot serve objects of kind `{0}`, only Node, Service, EndpointSlice, Endpoints and \
         ServiceCIDR"
    )]
    UnsupportedKind(String),
    /// The object has no name.
    #[error("cannot serve a {0} without a name")]
    MissingName(Resource),
    /// Two objects have the same name.
    #[error("duplicate {resource} {name}")]
    DuplicateName {
        /// Resource of the objects.
        resource: Resource,
        /// `namespace/name`, or the name of a cluster-scoped object.
        name: String,
    },
}

impl Store {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the version of the last change.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.changes.version()
    }

    /// Returns the objects of a resource, in the order of the input.
    pub fn objects(&self, resource: Resource) -> impl Iterator<Item = &Value> {
        let kept = self.objects.get(&resource);
        kept.into_iter().flat_map(IndexMap::values)
    }

    /// Returns the object with a name. `None` if it does not exist.
    #[must_use]
    pub fn object(&self, resource: Resource, namespace: &str, name: &str) -> Option<&Value> {
        let name = (namespace.to_owned(), name.to_owned());
        self.objects.get(&resource)?.get(&name)
    }

    /// Returns the changes after a version. `None` if some of them are no longer stored.
    #[must_use]
    pub fn changes_since(&self, version: u64) -> Option<impl Iterator<Item = &StoreEvent>> {
        self.changes.since(version)
    }

    /// Replaces all objects. Deletions precede other changes, which are in the order of `objects`.
    /// If `objects` contains no `Endpoints`, the store makes them from slices.
    ///
    /// # Errors
    ///
    /// Returns an error if an object cannot be served. The store then remains unchanged.
    pub fn replace(&mut self, objects: Vec<Value>) -> Result<(), StoreError> {
        let mut new_objects: Vec<(Resource, ObjectKey, Value)> = objects
            .into_iter()
            .map(normalize)
            .collect::<Result<_, _>>()?;
        let of_resource = |resource| new_objects.iter().filter(move |(of, _, _)| *of == resource);
        let makes_endpoints = of_resource(Resource::Endpoints).next().is_none();
        if makes_endpoints {
            let services = of_resource(Resource::Services).map(|(_, _, object)| object);
            let slices = of_resource(Resource::EndpointSlices).map(|(_, _, object)| object);
            let endpoints = convert::make_endpoints(services, slices);
            for object in endpoints {
                new_objects.push(normalize(object)?);
            }
        }
        let names = unique_names(&new_objects)?;
        self.makes_endpoints = makes_endpoints;
        self.slices.clear();
        let mut before = std::mem::take(&mut self.objects);
        for (resource, kept) in &before {
            for (name, object) in kept {
                if !names.contains(&(*resource, name)) {
                    let mut object = object.clone();
                    set_version(&mut object, self.version() + 1);
                    let change = ObjectChange::Deleted(object);
                    self.changes.record(*resource, change);
                }
            }
        }
        for (resource, name, after) in new_objects {
            let before = before.get_mut(&resource);
            let before = before.and_then(|kept| kept.swap_remove(&name));
            self.insert(resource, name, before, after);
        }
        Ok(())
    }

    /// Adds objects, or replaces objects with the same names. Other objects remain unchanged. If
    /// the store makes `Endpoints`, it updates those of the affected services.
    ///
    /// # Errors
    ///
    /// Returns an error if an object cannot be served. The store then remains unchanged.
    pub fn upsert(&mut self, objects: Vec<Value>) -> Result<(), StoreError> {
        let new_objects: Vec<(Resource, ObjectKey, Value)> = objects
            .into_iter()
            .map(normalize)
            .collect::<Result<_, _>>()?;
        unique_names(&new_objects)?;
        let mut affected_services = BTreeSet::new();
        for (resource, name, object) in new_objects {
            match resource {
                Resource::Services => {
                    affected_services.insert(name.clone());
                }
                Resource::EndpointSlices => {
                    let service = convert::service_name(&object);
                    affected_services
                        .extend(service.map(|service| (name.0.clone(), service.to_owned())));
                }
                _ => {}
            }
            self.store_object(resource, name, object);
        }
        if !self.makes_endpoints {
            return Ok(());
        }
        for (namespace, name) in affected_services {
            let service = self.object(Resource::Services, &namespace, &name);
            let names = self.slices.get(&(namespace.clone(), name.clone()));
            let slices = names.into_iter().flatten().filter_map(|(namespace, name)| {
                self.object(Resource::EndpointSlices, namespace, name)
            });
            for endpoints in convert::make_endpoints(service.into_iter(), slices) {
                let (resource, name, object) = normalize(endpoints)?;
                self.store_object(resource, name, object);
            }
        }
        Ok(())
    }

    /// Stores an object in place of an object with the same name.
    fn store_object(&mut self, resource: Resource, name: ObjectKey, after: Value) {
        let kept = self.objects.get_mut(&resource);
        // The object remains in its place until `insert` replaces it.
        let before = kept.and_then(|kept| kept.get_mut(&name)).map(Value::take);
        self.insert(resource, name, before, after);
    }

    /// Stores an object whose last state was `before`. An equal object causes no change.
    fn insert(
        &mut self,
        resource: Resource,
        name: ObjectKey,
        before: Option<Value>,
        mut after: Value,
    ) {
        self.index(resource, &name, &after);
        let object = match before {
            Some(before) if is_unchanged(&before, &mut after) => before,
            before => {
                set_version(&mut after, self.version() + 1);
                let object = after.clone();
                let change = match before {
                    None => ObjectChange::Added(after),
                    Some(before) => ObjectChange::Modified { before, after },
                };
                self.changes.record(resource, change);
                object
            }
        };
        let kept = self.objects.entry(resource).or_default();
        kept.insert(name, object);
    }

    /// Records the service of a slice.
    fn index(&mut self, resource: Resource, name: &ObjectKey, object: &Value) {
        if resource == Resource::EndpointSlices
            && let Some(service) = convert::service_name(object)
        {
            let service = (name.0.clone(), service.to_owned());
            self.slices.entry(service).or_default().insert(name.clone());
        }
    }
}

/// Returns the names of objects, after checking that they are unique.
fn unique_names(
    objects: &[(Resource, ObjectKey, Value)],
) -> Result<BTreeSet<(Resource, &ObjectKey)>, StoreError> {
    let mut names = BTreeSet::new();
    for (resource, name, _) in objects {
        if !names.insert((*resource, name)) {
            let (namespace, object_name) = name;
            return Err(StoreError::DuplicateName {
                resource: *resource,
                name: if resource.is_namespaced() {
                    format!("{namespace}/{object_name}")
                } else {
                    object_name.clone()
                },
            });
        }
    }
    Ok(names)
}

/// Returns the resource and name of an object, and the object with its common fields set.
fn normalize(mut object: Value) -> Result<(Resource, ObjectKey, Value), StoreError> {
    let resource = Resource::from_object(&object).ok_or_else(|| {
        let kind = object.get("kind").and_then(Value::as_str);
        StoreError::UnsupportedKind(kind.unwrap_or_default().to_owned())
    })?;
    let text = |field: &str| {
        let found = object.pointer(&format!("/metadata/{field}"));
        found.and_then(Value::as_str).map(str::to_owned)
    };
    let name = text("name").ok_or(StoreError::MissingName(resource))?;
    let namespace = if resource.is_namespaced() {
        text("namespace").unwrap_or_else(|| "default".to_owned())
    } else {
        String::new()
    };
    if resource.is_namespaced() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    if resource == Resource::EndpointSlices {
        convert::to_v1(&mut object);
    }
    object["apiVersion"] = json!(resource.api_version());
    Ok((resource, (namespace, name), object))
}

/// Whether two objects are equal apart from their version. Sets the version of `other` to that of
/// `kept`.
fn is_unchanged(kept: &Value, other: &mut Value) -> bool {
    let version = kept["metadata"]["resourceVersion"].clone();
    other["metadata"]["resourceVersion"] = version;
    kept == other
}

fn set_version(object: &mut Value, version: u64) {
    object["metadata"]["resourceVersion"] = json!(version.to_string());
}

#[cfg(test)]
mod tests {
    use super::super::changes::MAX_CHANGES;
    use super::*;

    fn node(name: &str, cidr: &str) -> Value {
        json!({"kind": "Node", "metadata": {"name": name}, "spec": {"podCIDR": cidr}})
    }

    fn describe_changes(store: &Store, since: u64) -> Vec<String> {
        let changes = store.changes_since(since).unwrap();
        changes
            .map(|change| {
                let (verb, object) = match &change.change {
                    ObjectChange::Added(object) => ("added", object),
                    ObjectChange::Modified { after, .. } => ("modified", after),
                    ObjectChange::Deleted(object) => ("deleted", object),
                };
                let name = object["metadata"]["name"].as_str().unwrap();
                let stamped = object["metadata"]["resourceVersion"].as_str().unwrap();
                assert_eq!(stamped, change.version.to_string());
                format!("{} {verb} {} {name}", change.version, change.resource)
            })
            .collect()
    }

    #[test]
    fn store_replace_reports_only_changes_deletions_first() {
        let mut store = Store::new();
        let first = vec![node("a", "10.0.0.1"), node("b", "10.0.0.2")];
        store.replace(first.clone()).unwrap();
        assert_eq!(
            describe_changes(&store, 1),
            ["2 added Node a", "3 added Node b"]
        );
        store.replace(first).unwrap();
        assert_eq!(store.version(), 3);
        store
            .replace(vec![node("c", "10.0.0.3"), node("b", "10.0.0.9")])
            .unwrap();
        assert_eq!(
            describe_changes(&store, 3),
            ["4 deleted Node a", "5 added Node c", "6 modified Node b"]
        );
        assert_eq!(store.object(Resource::Nodes, "", "a"), None);
        let b = store.object(Resource::Nodes, "", "b").unwrap();
        assert_eq!(b["spec"]["podCIDR"], "10.0.0.9");
        let order: Vec<_> = store
            .objects(Resource::Nodes)
            .map(|object| &object["metadata"]["name"])
            .collect();
        assert_eq!(order, ["c", "b"]);
    }

    #[test]
    fn store_upsert_leaves_other_objects_unchanged() {
        let service = json!({"kind": "Service", "metadata": {"name": "web"},
            "spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 80}]}});
        let slice = |address: &str| {
            json!({"kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
                "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
                "ports": [{"port": 8080}]})
        };
        let mut store = Store::new();
        store
            .replace(vec![node("a", "10.0.0.1"), service, slice("10.1.0.1")])
            .unwrap();
        let before = store.version();
        store.upsert(vec![slice("10.1.0.1")]).unwrap();
        assert_eq!(store.version(), before);
        store
            .upsert(vec![slice("10.1.0.2"), node("b", "10.0.0.2")])
            .unwrap();
        assert_eq!(
            describe_changes(&store, before),
            [
                "6 modified EndpointSlice web-1",
                "7 added Node b",
                "8 modified Endpoints web"
            ]
        );
        let endpoints = store.object(Resource::Endpoints, "default", "web").unwrap();
        assert!(endpoints.to_string().contains("10.1.0.2"), "{endpoints}");
        let twice = vec![node("c", "10.0.0.1"), node("c", "10.0.0.2")];
        assert!(store.upsert(twice).is_err());
        assert_eq!(store.version(), before + 3);
    }

    #[test]
    fn store_changes_since_expired_version_is_none() {
        let mut store = Store::new();
        for round in 0..=MAX_CHANGES {
            let ip = format!("10.0.{}.{}", round / 250, round % 250);
            store.replace(vec![node("a", &ip)]).unwrap();
        }
        assert!(store.changes_since(1).is_none());
        assert_eq!(store.changes_since(2).unwrap().count(), MAX_CHANGES);
        assert_eq!(store.changes_since(store.version()).unwrap().count(), 0);
    }

    #[test]
    fn store_replace_invalid_object_returns_error() {
        let mut store = Store::new();
        for (objects, message) in [
            (
                vec![json!({"kind": "Pod", "metadata": {"name": "a"}})],
                "cannot serve objects of kind `Pod`, only Node, Service, EndpointSlice, Endpoints \
                 and ServiceCIDR",
            ),
            (
                vec![json!({"kind": "Node"})],
                "cannot serve a Node without a name",
            ),
            (
                vec![node("a", "10.0.0.1"), node("a", "10.0.0.2")],
                "duplicate Node a",
            ),
        ] {
            let error = store.replace(objects).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert_eq!(store.version(), 1);
        }
    }
}
