//! Records the answers of the lab's servers. A probe accepts an answer only if a server of this
//! agent sent it. Other programs of a lab may print the same line, with any name and source.
//!
//! Servers and probes run on the same thread, so this record is the proof.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use svclab_model::evidence::Answer;

/// Maximum number of recorded answers. The answer to a client that is not a probe stays on record
/// until newer answers replace it.
const MAX_RECORDED: usize = 1 << 16;

thread_local! {
    static RECORDED: RefCell<VecDeque<(Rc<str>, SocketAddr)>> = const { RefCell::new(VecDeque::new()) };
}

/// Creates and records the answer of a server to a peer: one line with the server's name and the
/// peer's address.
pub(crate) fn record(name: &Rc<str>, peer: SocketAddr) -> String {
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    RECORDED.with_borrow_mut(|given| {
        if given.len() == MAX_RECORDED {
            given.pop_front();
        }
        given.push_back((Rc::clone(name), peer));
    });
    format!("{name} {peer}\n")
}

/// Parses an answer into the server's name and the client address that the server saw. Each
/// recorded answer is accepted once. Returns `None` for any other line.
pub(crate) fn accept(line: &[u8]) -> Option<Answer> {
    let (name, peer) = parse(line)?;
    RECORDED.with_borrow_mut(|given| {
        let index = given
            .iter()
            .rposition(|(by, to)| **by == *name && *to == peer)?;
        given.remove(index)
    })?;
    Some(Answer {
        endpoint: name,
        seen_source: peer,
    })
}

fn parse(line: &[u8]) -> Option<(String, SocketAddr)> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (name, peer) = line.rsplit_once(' ')?;
    Some((name.to_owned(), peer.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_accepted_once() {
        let peer: SocketAddr = "10.0.0.1:4242".parse().unwrap();
        let line = record(&Rc::from("pod/default/web"), peer);
        let read = Some(Answer {
            endpoint: "pod/default/web".to_owned(),
            seen_source: peer,
        });
        assert_eq!(accept(line.as_bytes()), read);
        assert_eq!(accept(line.as_bytes()), None);
    }

    #[test]
    fn answer_without_server_record_is_rejected() {
        let peer: SocketAddr = "10.0.0.1:4242".parse().unwrap();
        record(&Rc::from("pod/default/web"), peer);
        for line in [
            "pod/default/web 10.0.0.1:4243\n",
            "pod/default/wed 10.0.0.1:4242\n",
            "pod/default/web 10.0.0.1:4242",
            "pod",
            "",
            "x y\n",
        ] {
            assert_eq!(accept(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn answer_to_mapped_peer_names_ipv4_address() {
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:1".parse().unwrap();
        assert_eq!(record(&Rc::from("a"), mapped), "a 10.0.0.1:1\n");
    }

    #[test]
    fn answers_on_record_are_bounded() {
        let name = Rc::from("a");
        let peer = |number: usize| {
            let port = u16::try_from(number % 60_000).unwrap();
            SocketAddr::new(
                [10, 0, 0, u8::try_from(number / 60_000).unwrap()].into(),
                port,
            )
        };
        let first = record(&name, peer(0));
        for number in 1..=MAX_RECORDED {
            record(&name, peer(number));
        }
        assert_eq!(RECORDED.with_borrow(VecDeque::len), MAX_RECORDED);
        assert_eq!(accept(first.as_bytes()), None);
    }
}
