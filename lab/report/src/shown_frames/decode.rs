//! Decodes the bytes of a frame into headers.

use super::header::Header;
use super::layer::{Decoded, Layer, Next, not_decoded};
use super::{network, transport};

/// Maximum number of headers, which limits the depth of tunnels.
const MAX_HEADERS: usize = 20;

/// Decodes a frame, from its Ethernet header on.
pub(super) fn decode(frame: &[u8]) -> Vec<Header> {
    let mut headers = Vec::new();
    let mut next = Some(Next {
        layer: Layer::Ethernet,
        bytes: frame,
    });
    while let Some(Next { layer, bytes }) = next {
        if headers.len() == MAX_HEADERS {
            headers.push(not_decoded("further headers", bytes));
            break;
        }
        let (header, following) = decode_layer(layer, bytes)
            .unwrap_or_else(|| (Some(not_decoded(&name_truncated(layer), bytes)), None));
        headers.extend(header);
        next = following;
    }
    headers
}

/// Decodes the header at the start of `bytes`. Returns `None` if the header is incomplete.
fn decode_layer(layer: Layer, bytes: &[u8]) -> Option<Decoded<'_>> {
    match layer {
        Layer::Transport(own) if !network::is_tunnel(own) => transport::decode(own, bytes),
        Layer::Data(length) => Some(((length > 0).then_some(Header::Data { length }), None)),
        layer => network::decode(layer, bytes),
    }
}

fn name_truncated(layer: Layer) -> String {
    let name = match layer {
        Layer::Ethernet => "Ethernet".to_owned(),
        Layer::EtherType(kind) => kind.to_string(),
        Layer::Ip => "IP".to_owned(),
        Layer::Transport(transport) => transport.protocol.to_string(),
        Layer::Vxlan => "VXLAN".to_owned(),
        Layer::Data(_) => "data".to_owned(),
    };
    format!("incomplete {name} header")
}
