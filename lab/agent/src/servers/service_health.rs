//! Serves kube-proxy's health check on a service's `healthCheckNodePort`.
//!
//! The response is 200 if the node has endpoints of the service, 503 otherwise. The body contains
//! the number of endpoints (kubernetes v1.20.2, `pkg/proxy/healthcheck/service_health.go`).

use std::rc::Rc;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt as _, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::servers::accept::accept;

/// Maximum size of a request's header in bytes (Go 1.24, `net/http/server.go`,
/// `DefaultMaxHeaderBytes`).
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Response to a request with a larger header.
const TOO_LARGE: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Result of reading the header of a request.
#[derive(Debug, PartialEq, Eq)]
enum Header {
    Read,
    TooLarge,
}

/// Serves the health of a service.
pub(super) async fn serve(listener: TcpListener, service: String, local_endpoints: usize) {
    let response: Rc<str> = Rc::from(render_response(&service, local_endpoints));
    accept(listener, |stream, _| respond(stream, Rc::clone(&response))).await;
}

async fn respond(mut stream: TcpStream, response: Rc<str>) {
    let response = match read_header(&mut stream).await {
        Header::Read => &*response,
        Header::TooLarge => TOO_LARGE,
    };
    let _ = stream.write_all(response.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Reads to the empty line at the end of a request's header, or to the end of the stream.
async fn read_header(stream: impl AsyncRead + Unpin) -> Header {
    let mut stream = BufReader::new(stream.take(MAX_HEADER_BYTES));
    let (mut line, mut has_ended) = (Vec::new(), false);
    while !has_ended
        && stream
            .read_until(b'\n', &mut line)
            .await
            .is_ok_and(|length| length > 0)
    {
        has_ended = matches!(line.as_slice(), b"\n" | b"\r\n");
        line.clear();
    }
    if stream.get_ref().limit() == 0 && !has_ended {
        return Header::TooLarge;
    }
    Header::Read
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
    use super::*;

    #[tokio::test]
    async fn header_without_end_is_too_large() {
        let endless = || tokio::io::repeat(b'a');
        assert_eq!(read_header(endless()).await, Header::TooLarge);
        let lines = b"a\n".repeat(1 << 20);
        assert_eq!(read_header(lines.as_slice()).await, Header::TooLarge);
        let whole = b"GET / HTTP/1.1\r\n\r\n".as_slice();
        assert_eq!(read_header(whole.chain(endless())).await, Header::Read);
        assert_eq!(read_header(b"GET /".as_slice()).await, Header::Read);
    }

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
