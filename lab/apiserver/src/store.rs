//! Stores the served objects, each with the version of its last change, and the latest changes.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use indexmap::IndexMap;
use serde_json::{Value, json};
use thiserror::Error;

use super::convert;
use super::resource::Resource;

/// Maximum number of stored changes. A client that watches from an older version must list again.
const REMEMBERED: usize = 16_384;

/// Namespace and name of an object. The namespace is empty for a cluster-scoped resource.
type Name = (String, String);

/// Objects and their latest changes.
#[derive(Debug, Clone, Default)]
pub struct Store {
    version: u64,
    objects: BTreeMap<Resource, IndexMap<Name, Value>>,
    changes: VecDeque<Change>,
    /// Whether the store makes `Endpoints` from slices.
    makes_endpoints: bool,
    /// Slices by service. A slice that named a service once remains here.
    slices: HashMap<Name, BTreeSet<Name>>,
}

/// Change of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Version of the store after the change.
    pub version: u64,
    /// Resource of the object.
    pub resource: Resource,
    /// Kind of change, with the object.
    pub what: Changed,
}

/// Kind of change, with the object.
#[derive(Debug, Clone, PartialEq)]
pub enum Changed {
    /// The object was added.
    Added(Value),
    /// The object was changed.
    Modified {
        /// Object before the change.
        before: Value,
        /// Object after the change.
        after: Value,
    },
    /// The object was deleted. Contains the last object, with the version of the deletion.
    Deleted(Value),
}

/// Error for objects that cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// The kind is not one of the served kinds.
    #[error(
        "objects of the kind `{0}` cannot be served: Node, Service, EndpointSlice, Endpoints and ServiceCIDR can"
    )]
    Kind(String),
    /// The object has no name.
    #[error("a {0} without a name cannot be served")]
    Nameless(Resource),
    /// Two objects have the same name.
    #[error("the {resource} {name} is there twice")]
    Twice {
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
        Self {
            // In requests, resource version 0 means any version.
            version: 1,
            ..Self::default()
        }
    }

    /// Returns the version of the last change.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
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
    pub fn since(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        // Each change increases the version by 1.
        let first = self
            .changes
            .front()
            .map_or(self.version + 1, |change| change.version);
        let after = self
            .changes
            .partition_point(|change| change.version <= version);
        (version + 1 >= first).then(|| self.changes.range(after..))
    }

    /// Replaces all objects. Deletions precede other changes, which are in the order of `objects`.
    /// If `objects` contains no `Endpoints`, the store makes them from slices.
    ///
    /// # Errors
    ///
    /// Returns an error if an object cannot be served. The store then remains unchanged.
    pub fn replace(&mut self, objects: Vec<Value>) -> Result<(), StoreError> {
        let mut wanted: Vec<(Resource, Name, Value)> =
            objects.into_iter().map(read).collect::<Result<_, _>>()?;
        let of = |resource| wanted.iter().filter(move |(of, _, _)| *of == resource);
        let makes_endpoints = of(Resource::Endpoints).next().is_none();
        if makes_endpoints {
            let services = of(Resource::Services).map(|(_, _, object)| object);
            let slices = of(Resource::EndpointSlices).map(|(_, _, object)| object);
            let made = convert::endpoints(services, slices);
            for object in made {
                wanted.push(read(object)?);
            }
        }
        let names = names_of(&wanted)?;
        self.makes_endpoints = makes_endpoints;
        self.slices.clear();
        let mut before = std::mem::take(&mut self.objects);
        for (resource, kept) in &before {
            for (name, object) in kept {
                if !names.contains(&(*resource, name)) {
                    let mut object = object.clone();
                    let version = self.version + 1;
                    stamp(&mut object, version);
                    self.happened(*resource, Changed::Deleted(object));
                }
            }
        }
        for (resource, name, mut after) in wanted {
            let known = before
                .get_mut(&resource)
                .and_then(|kept| kept.swap_remove(&name));
            let object = match known {
                Some(before) if same(&before, &mut after) => before,
                known => {
                    stamp(&mut after, self.version + 1);
                    let what = match known {
                        None => Changed::Added(after.clone()),
                        Some(before) => Changed::Modified {
                            before,
                            after: after.clone(),
                        },
                    };
                    self.happened(resource, what);
                    after
                }
            };
            self.index(resource, &name, &object);
            self.objects
                .entry(resource)
                .or_default()
                .insert(name, object);
        }
        Ok(())
    }

    /// Adds objects, or replaces objects with the same names. Other objects remain unchanged. If
    /// the store makes `Endpoints`, it updates those of the affected services.
    ///
    /// # Errors
    ///
    /// Returns an error if an object cannot be served. The store then remains unchanged.
    pub fn put(&mut self, objects: Vec<Value>) -> Result<(), StoreError> {
        let wanted: Vec<(Resource, Name, Value)> =
            objects.into_iter().map(read).collect::<Result<_, _>>()?;
        names_of(&wanted)?;
        let mut concerned = BTreeSet::new();
        for (resource, name, object) in wanted {
            match resource {
                Resource::Services => {
                    concerned.insert(name.clone());
                }
                Resource::EndpointSlices => {
                    let service = convert::service_of(&object);
                    concerned.extend(service.map(|service| (name.0.clone(), service.to_owned())));
                }
                _ => {}
            }
            self.keep(resource, name, object);
        }
        if !self.makes_endpoints {
            return Ok(());
        }
        for (namespace, name) in concerned {
            let service = self.object(Resource::Services, &namespace, &name);
            let names = self.slices.get(&(namespace.clone(), name.clone()));
            let slices = names.into_iter().flatten().filter_map(|(namespace, name)| {
                self.object(Resource::EndpointSlices, namespace, name)
            });
            for made in convert::endpoints(service.into_iter(), slices) {
                let (resource, name, object) = read(made)?;
                self.keep(resource, name, object);
            }
        }
        Ok(())
    }

    /// Stores an object in place of an object with the same name. An equal object causes no change.
    fn keep(&mut self, resource: Resource, name: Name, mut after: Value) {
        self.index(resource, &name, &after);
        let version = self.version + 1;
        let kept = self.objects.entry(resource).or_default();
        let what = match kept.get_mut(&name) {
            Some(before) if same(before, &mut after) => return,
            Some(before) => {
                stamp(&mut after, version);
                Changed::Modified {
                    before: std::mem::replace(before, after.clone()),
                    after,
                }
            }
            None => {
                stamp(&mut after, version);
                kept.insert(name, after.clone());
                Changed::Added(after)
            }
        };
        self.happened(resource, what);
    }

    /// Records the service of a slice.
    fn index(&mut self, resource: Resource, name: &Name, object: &Value) {
        if resource == Resource::EndpointSlices
            && let Some(service) = convert::service_of(object)
        {
            let service = (name.0.clone(), service.to_owned());
            self.slices.entry(service).or_default().insert(name.clone());
        }
    }

    fn happened(&mut self, resource: Resource, what: Changed) {
        self.version += 1;
        if self.changes.len() == REMEMBERED {
            self.changes.pop_front();
        }
        self.changes.push_back(Change {
            version: self.version,
            resource,
            what,
        });
    }
}

/// Returns the names of objects, after checking that they are unique.
fn names_of(
    objects: &[(Resource, Name, Value)],
) -> Result<BTreeSet<(Resource, &Name)>, StoreError> {
    let mut names = BTreeSet::new();
    for (resource, name, _) in objects {
        if !names.insert((*resource, name)) {
            let (namespace, called) = name;
            return Err(StoreError::Twice {
                resource: *resource,
                name: if resource.is_namespaced() {
                    format!("{namespace}/{called}")
                } else {
                    called.clone()
                },
            });
        }
    }
    Ok(names)
}

/// Returns the resource and name of an object, and the object with its common fields set.
fn read(mut object: Value) -> Result<(Resource, Name, Value), StoreError> {
    let resource = Resource::of(&object).ok_or_else(|| {
        let kind = object.get("kind").and_then(Value::as_str);
        StoreError::Kind(kind.unwrap_or_default().to_owned())
    })?;
    let text = |field: &str| {
        let found = object.pointer(&format!("/metadata/{field}"));
        found.and_then(Value::as_str).map(str::to_owned)
    };
    let called = text("name").ok_or(StoreError::Nameless(resource))?;
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
    Ok((resource, (namespace, called), object))
}

/// Whether two objects are equal apart from their version. Sets the version of `other` to that of
/// `kept`.
fn same(kept: &Value, other: &mut Value) -> bool {
    let version = kept["metadata"]["resourceVersion"].clone();
    other["metadata"]["resourceVersion"] = version;
    kept == other
}

fn stamp(object: &mut Value, version: u64) {
    object["metadata"]["resourceVersion"] = json!(version.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, cidr: &str) -> Value {
        json!({"kind": "Node", "metadata": {"name": name}, "spec": {"podCIDR": cidr}})
    }

    fn told(store: &Store, since: u64) -> Vec<String> {
        let changes = store.since(since).unwrap();
        changes
            .map(|change| {
                let (verb, object) = match &change.what {
                    Changed::Added(object) => ("added", object),
                    Changed::Modified { after, .. } => ("modified", after),
                    Changed::Deleted(object) => ("deleted", object),
                };
                let name = object["metadata"]["name"].as_str().unwrap();
                let stamped = object["metadata"]["resourceVersion"].as_str().unwrap();
                assert_eq!(stamped, change.version.to_string());
                format!("{} {verb} {} {name}", change.version, change.resource)
            })
            .collect()
    }

    #[test]
    fn only_what_changes_is_told_and_what_goes_first() {
        let mut store = Store::new();
        let first = vec![node("a", "10.0.0.1"), node("b", "10.0.0.2")];
        store.replace(first.clone()).unwrap();
        assert_eq!(told(&store, 1), ["2 added Node a", "3 added Node b"]);
        store.replace(first).unwrap();
        assert_eq!(store.version(), 3);
        store
            .replace(vec![node("c", "10.0.0.3"), node("b", "10.0.0.9")])
            .unwrap();
        assert_eq!(
            told(&store, 3),
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
    fn what_is_put_leaves_all_else_alone() {
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
        store.put(vec![slice("10.1.0.1")]).unwrap();
        assert_eq!(store.version(), before);
        store
            .put(vec![slice("10.1.0.2"), node("b", "10.0.0.2")])
            .unwrap();
        assert_eq!(
            told(&store, before),
            [
                "6 modified EndpointSlice web-1",
                "7 added Node b",
                "8 modified Endpoints web"
            ]
        );
        let endpoints = store.object(Resource::Endpoints, "default", "web").unwrap();
        assert!(endpoints.to_string().contains("10.1.0.2"), "{endpoints}");
        let twice = vec![node("c", "10.0.0.1"), node("c", "10.0.0.2")];
        assert!(store.put(twice).is_err());
        assert_eq!(store.version(), before + 3);
    }

    #[test]
    fn what_is_forgotten_cannot_be_told() {
        let mut store = Store::new();
        for round in 0..=REMEMBERED {
            let ip = format!("10.0.{}.{}", round / 250, round % 250);
            store.replace(vec![node("a", &ip)]).unwrap();
        }
        assert!(store.since(1).is_none());
        assert_eq!(store.since(2).unwrap().count(), REMEMBERED);
        assert_eq!(store.since(store.version()).unwrap().count(), 0);
    }

    #[test]
    fn what_cannot_be_served_is_named_and_changes_nothing() {
        let mut store = Store::new();
        for (objects, says) in [
            (
                vec![json!({"kind": "Pod", "metadata": {"name": "a"}})],
                "objects of the kind `Pod` cannot be served: Node, Service, EndpointSlice, Endpoints and ServiceCIDR can",
            ),
            (
                vec![json!({"kind": "Node"})],
                "a Node without a name cannot be served",
            ),
            (
                vec![node("a", "10.0.0.1"), node("a", "10.0.0.2")],
                "the Node a is there twice",
            ),
        ] {
            let error = store.replace(objects).unwrap_err();
            assert_eq!(error.to_string(), says);
            assert_eq!(store.version(), 1);
        }
    }
}
