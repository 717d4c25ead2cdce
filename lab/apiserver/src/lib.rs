//! A Kubernetes API server of which kube-proxy notices nothing missing: list and
//! watch of what a kube-proxy reads, in JSON.
//!
//! Pure: [`Store`] holds objects and remembers changes, [`ask()`] reads a
//! request, [`answer()`] answers one, and a [`Watch`] tells what there is to
//! tell since it was last asked. The sockets are the agent's.
//!
//! What is asked for differs between versions of kube-proxy: a list and then a
//! watch from its resource version up to v1.34, one watch that begins with what
//! there is (`sendInitialEvents`) later; `Endpoints` up to v1.18, endpoint slices
//! of v1beta1 up to v1.20. All of it is served to everybody. What goes on the
//! wire follows kubernetes v1.36
//! `staging/src/k8s.io/apiserver/pkg/endpoints/handlers/{get,watch}.go`.

mod answer;
mod convert;
mod refusals;
mod request;
mod resource;
mod selector;
mod store;
mod watch;

pub use answer::{Answer, answer};
pub use refusals::Refusals;
pub use request::{Ask, Refusal, Scope, Verb, ask};
pub use resource::{Form, Resource, served};
pub use selector::{FieldSelector, LabelSelector, SelectorError};
pub use store::{Change, Changed, Store, StoreError};
pub use watch::Watch;
