//! Serves kube-proxy's health check on a service's `healthCheckNodePort`.
//!
//! The response is 200 if the node has endpoints of the service, 503 otherwise. The body contains
//! the number of endpoints (kubernetes v1.20.2, `pkg/proxy/healthcheck/service_health.go`).

use std::rc::Rc;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::servers::accept::accept;

/// Serves the health of a service.
pub(super) async fn serve(listener: TcpListener, service: String, local_endpoints: usize) {
    let response: Rc<str> = Rc::from(render_response(&service, local_endpoints));
    accept(listener, |stream, _| respond(stream, Rc::clone(&response))).await;
}

async fn respond(stream: TcpStream, response: Rc<str>) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    // Reads to the empty line at the end of the request's header.
    while stream
        .read_line(&mut line)
        .await
        .is_ok_and(|length| length > 0)
        && line.trim_end() != ""
    {
        line.clear();
    }
    let _ = stream.write_all(response.as_bytes()).await;
    let _ = stream.shutdown().await;
}

fn render_response(service: &str, local_endpoints: usize) -> String {
    let status = if local_endpoints > 0 {
        "200 OK"
    } else {
        "503 Service Unavailable"
    };
    let (namespace, name) = service.split_once('/').unwrap_or(("default", service));
    let body = serde_json::json!({
        "service": {"namespace": namespace, "name": name},
        "localEndpoints": local_endpoints,
    })
    .to_string();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::render_response;

    #[test]
    fn node_without_endpoints_returns_503() {
        assert!(render_response("default/web", 0).starts_with("HTTP/1.1 503 "));
        let well = render_response("default/web", 2);
        assert!(well.starts_with("HTTP/1.1 200 "));
        assert!(
            well.ends_with(
                r#"{"service":{"namespace":"default","name":"web"},"localEndpoints":2}"#
            )
        );
    }
}
