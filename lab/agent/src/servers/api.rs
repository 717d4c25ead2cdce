//! Serves the API server of [`svclab_apiserver`] on a socket in a namespace.

use std::cell::{Cell, Ref, RefCell};
use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::pending;
use futures_util::stream::{LocalBoxStream, StreamExt as _, unfold};
use http_body_util::{BodyExt as _, Either, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::net::netns::NetNs;
use crate::runtime::failure;
use crate::servers::accept::accept;
use crate::servers::marker::{self, marker};
use crate::servers::server;
use svclab_apiserver::{
    ApiError, ApiRequest, ApiResponse, RejectedRequests, Resource, Store, StoreError, Verb, Watch,
    parse_request,
};
use svclab_model::plan::ProbeProtocol;
use svclab_model::protocol::{Failure, FailureKind};

/// Maximum size of a request's body in bytes (kubernetes v1.30.0,
/// `staging/src/k8s.io/apiserver/pkg/server/config.go`, `MaxRequestBodyBytes`).
const MAX_BODY_BYTES: usize = 3 << 20;

/// Response body: a document, or a stream of watch events.
type ResponseBody =
    Either<Full<Bytes>, StreamBody<LocalBoxStream<'static, Result<Frame<Bytes>, Infallible>>>>;

/// Requests that the client has made for endpoints, as `EndpointSlices` or as `Endpoints`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum EndpointRequests {
    #[default]
    None,
    /// The client has listed endpoints.
    Listed,
    /// The client has watched endpoints.
    Watched,
}

/// API server. Dropping the server closes its socket and all connections.
pub(crate) struct Api {
    shared: Rc<Shared>,
    tasks: JoinSet<()>,
}

struct Shared {
    store: RefCell<Store>,
    endpoint_requests: watch::Sender<EndpointRequests>,
    /// Whether the client has listed or watched services.
    requested_services: Cell<bool>,
    refusals: RefCell<RejectedRequests>,
    /// Version of the store. Watches wait for it to change.
    version: watch::Sender<u64>,
}

impl Api {
    /// Creates the API server of a node, without objects and without a socket.
    pub(crate) fn new(node: &str) -> Self {
        let store = Store::new();
        Self {
            shared: Rc::new(Shared {
                refusals: RefCell::new(RejectedRequests::new(node)),
                version: watch::Sender::new(store.version()),
                store: RefCell::new(store),
                endpoint_requests: watch::Sender::default(),
                requested_services: Cell::new(false),
            }),
            tasks: JoinSet::new(),
        }
    }

    /// Replaces all objects and sends the changes to all watches. Returns the new version of the
    /// store.
    pub(crate) fn replace(&self, objects: Vec<serde_json::Value>) -> Result<u64, Failure> {
        self.update(|store| store.replace(objects))
    }

    /// Replaces or adds these objects, keeps all others and sends the changes to all watches.
    /// Returns the new version of the store.
    pub(crate) fn upsert(&self, objects: Vec<serde_json::Value>) -> Result<u64, Failure> {
        self.update(|store| store.upsert(objects))
    }

    /// Serves the next marker.
    ///
    /// # Errors
    ///
    /// When the marker cannot be served, which no marker causes.
    #[expect(
        clippy::disallowed_methods,
        reason = "kube-proxy compares the timestamp with the time of day at its start"
    )]
    pub(crate) fn put_marker(&self) -> Result<(), Failure> {
        let number = self.shared.store.borrow().version();
        // The clock may have been set back since kube-proxy started.
        let time = SystemTime::now() + Duration::from_hours(24);
        self.upsert(marker(number, time)).map(drop)
    }

    /// Whether the store contains a marker.
    pub(crate) fn is_marked(&self) -> bool {
        let store = self.shared.store.borrow();
        let (namespace, name) = (marker::NAMESPACE, marker::NAME);
        store
            .object(Resource::EndpointSlices, namespace, name)
            .is_some()
    }

    /// Waits until the client watches endpoints, if it has listed them. Returns the requests that the
    /// client has made for endpoints.
    pub(crate) async fn endpoint_requests(&self, max_wait: Duration) -> EndpointRequests {
        let mut requests = self.shared.endpoint_requests.subscribe();
        let watches = requests.wait_for(|made| *made != EndpointRequests::Listed);
        let _ = timeout(max_wait, watches).await;
        *self.shared.endpoint_requests.borrow()
    }

    /// Returns the kinds of objects that a kube-proxy needs for its rules and that the client has
    /// neither listed nor watched.
    pub(crate) fn unrequested_kinds(&self) -> Vec<&'static str> {
        let has_endpoints = *self.shared.endpoint_requests.borrow() != EndpointRequests::None;
        let kinds = [
            ("services", self.shared.requested_services.get()),
            ("endpoints", has_endpoints),
        ];
        let missing = kinds.into_iter().filter(|(_, requested)| !requested);
        missing.map(|(kind, _)| kind).collect()
    }

    /// Returns the requests that the server refused.
    pub(crate) fn refusals(&self) -> Ref<'_, RejectedRequests> {
        self.shared.refusals.borrow()
    }

    fn update(
        &self,
        change: impl FnOnce(&mut Store) -> Result<(), StoreError>,
    ) -> Result<u64, Failure> {
        let mut store = self.shared.store.borrow_mut();
        change(&mut store).map_err(|error| Failure {
            kind: FailureKind::Input,
            message: format!("cannot update the API server of the lab: {error}"),
            remedy: None,
            rejected: None,
        })?;
        self.shared.version.send_replace(store.version());
        Ok(store.version())
    }

    /// Opens the server's socket in a namespace and accepts connections.
    pub(crate) fn open(
        mut self,
        ns: &NetNs,
        name: &str,
        address: SocketAddr,
    ) -> Result<Self, Failure> {
        let listener = ns
            .enter(|| server::bind(ProbeProtocol::Tcp, address))
            .and_then(|bound| TcpListener::from_std(bound?.into()))
            .map_err(|error| {
                let message =
                    format!("cannot serve the Kubernetes API on {address} in {name}: {error}");
                failure::host(message, &error)
            })?;
        let shared = Rc::clone(&self.shared);
        self.tasks.spawn_local(accept(listener, move |stream, _| {
            serve_connection(stream, Rc::clone(&shared))
        }));
        Ok(self)
    }
}

async fn serve_connection(stream: TcpStream, shared: Rc<Shared>) {
    let service = service_fn(move |request| {
        let shared = Rc::clone(&shared);
        async move { Ok::<_, Infallible>(respond(request, &shared).await) }
    });
    // A client may disconnect at any time.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn respond(request: Request<Incoming>, shared: &Rc<Shared>) -> Response<ResponseBody> {
    let target = request
        .uri()
        .path_and_query()
        .map_or("/", |target| target.as_str())
        .to_owned();
    let method = request.method().to_string();
    let body = skip_body(request.into_body()).await;
    let parsed = body.and_then(|()| parse_request(&method, &target));
    let result = parsed.and_then(|api_request| {
        let collection = match &api_request {
            ApiRequest::Objects { verb, form, .. } if *verb != Verb::Get => Some(form.resource),
            _ => None,
        };
        let answered = svclab_apiserver::respond(&shared.store.borrow(), api_request)?;
        match collection {
            Some(Resource::Services) => shared.requested_services.set(true),
            Some(Resource::Endpoints | Resource::EndpointSlices) => {
                let interest = match answered {
                    ApiResponse::Document { .. } => EndpointRequests::Listed,
                    ApiResponse::Stream { .. } => EndpointRequests::Watched,
                };
                shared
                    .endpoint_requests
                    .send_modify(|made| *made = interest.max(*made));
            }
            _ => {}
        }
        Ok(answered)
    });
    let answered = result.unwrap_or_else(|refusal| {
        let mut refusals = shared.refusals.borrow_mut();
        refusals.record(&method, &target, &refusal);
        ApiResponse::from(&refusal)
    });
    let (code, body) = match answered {
        ApiResponse::Document { code, body } => (
            StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            Either::Left(Full::from(body.to_string())),
        ),
        ApiResponse::Stream { watch, seconds } => {
            let events = watch_events(Rc::clone(shared), watch, seconds);
            (StatusCode::OK, Either::Right(StreamBody::new(events)))
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// Reads the body of a request to its end without keeping it.
async fn skip_body<B>(body: B) -> Result<(), ApiError>
where
    B: Body + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut body = Limited::new(body, MAX_BODY_BYTES);
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(_) => {}
            Err(error) if error.is::<LengthLimitError>() => {
                return Err(ApiError::TooLarge(MAX_BODY_BYTES));
            }
            // The client has disconnected.
            Err(_) => break,
        }
    }
    Ok(())
}

/// Returns the time in `seconds`, which a client selects. `None` if no clock reaches that time.
fn deadline(seconds: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_secs(seconds))
}

/// Returns the events of a watch as a stream that ends after `seconds`.
fn watch_events(
    shared: Rc<Shared>,
    watch: Watch,
    seconds: Option<u64>,
) -> LocalBoxStream<'static, Result<Frame<Bytes>, Infallible>> {
    let changed = shared.version.subscribe();
    let deadline = seconds.and_then(deadline);
    unfold(
        (shared, watch, changed),
        move |(shared, mut watch, mut changed)| async move {
            loop {
                changed.mark_unchanged();
                let events = watch.next_events(&shared.store.borrow());
                if !events.is_empty() {
                    let mut lines = String::new();
                    for event in events {
                        lines.push_str(&event.to_string());
                        lines.push('\n');
                    }
                    let frame = Frame::data(Bytes::from(lines));
                    return Some((Ok(frame), (shared, watch, changed)));
                }
                if watch.has_ended() {
                    return None;
                }
                let timed_out = async {
                    match deadline {
                        Some(until) => tokio::time::sleep_until(until).await,
                        None => pending().await,
                    }
                };
                tokio::select! {
                    waited = changed.changed() => waited.ok()?,
                    () = timed_out => return None,
                }
            }
        },
    )
    .boxed_local()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn body_larger_than_limit_is_refused() {
        let skip = async |length| skip_body(Full::new(Bytes::from(vec![0; length]))).await;
        assert_eq!(skip(MAX_BODY_BYTES).await, Ok(()));
        let error = skip(MAX_BODY_BYTES + 1).await.unwrap_err();
        assert_eq!(error.code(), 413);
        insta::assert_snapshot!(error, @"the request body is larger than 3145728 bytes");
    }

    #[test]
    fn deadline_beyond_clock_is_none() {
        assert!(deadline(u64::MAX).is_none());
        assert!(deadline(60).is_some());
    }
}
