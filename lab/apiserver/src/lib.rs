//! Implements a Kubernetes API server for kube-proxy: list and watch of the resources that
//! kube-proxy reads, in JSON.
//!
//! The crate does no I/O. [`Store`] holds objects and their latest changes, [`parse_request()`]
//! parses a request, and [`respond()`] answers it. A [`Watch`] returns the events since the
//! last call. The agent owns the sockets.
//!
//! The requests differ between versions of kube-proxy. Versions up to v1.34 list, then watch from
//! the resource version of the list. Later versions only watch, with `sendInitialEvents`.
//! `Endpoints` are requested up to v1.18, endpoint slices of v1beta1 up to v1.20. All clients can
//! use all of this. The responses follow kubernetes v1.36
//! `staging/src/k8s.io/apiserver/pkg/endpoints/handlers/{get,watch}.go`.

#![warn(unreachable_pub)]

mod answer;
mod changes;
mod convert;
mod object;
mod refusals;
mod request;
mod resource;
mod selector;
mod store;
mod watch;

pub use answer::{ApiResponse, respond};
pub use changes::{ObjectChange, StoreEvent};
pub use refusals::RejectedRequests;
pub use request::{ApiError, ApiRequest, RequestScope, Verb, parse_request};
pub use resource::{Resource, VersionedResource, served_resources};
pub use selector::{FieldSelector, LabelSelector, SelectorError};
pub use store::{Store, StoreError};
pub use watch::Watch;
