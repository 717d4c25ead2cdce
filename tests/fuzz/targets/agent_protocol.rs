//! Fuzzes both ends of the agent's pipe with arbitrary bytes, as from a compromised peer. A message
//! is either parsed or refused, and has the same meaning after it is serialized again.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use svclab_model::protocol::{Request, read_event, request_framing};
use svclab_planner::requirements::Requirements;
use tokio_util::codec::Decoder as _;

fuzz_target!(|bytes: &[u8]| {
    let mut stream = BytesMut::from(bytes);
    let mut frames = request_framing();
    while let Ok(Some(frame)) = frames.decode(&mut stream) {
        check_message(&frame);
    }
    // Valid lengths are rare: the bytes after the first length are also tried as one message.
    if let Some((_, message)) = bytes.split_at_checked(4) {
        check_message(message);
    }
});

fn check_message(message: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<Request>(message) {
        if let Request::Build { plan, .. } = &request {
            let _ = Requirements::from_plan(plan);
        }
        let again = serde_json::to_vec(&request).expect("the parsed value can be rendered");
        let read = serde_json::from_slice::<Request>(&again).expect("the written value");
        assert_eq!(read, request);
    }
    if let Ok(event) = read_event(message) {
        let again = serde_json::to_vec(&event).expect("the parsed value can be rendered");
        let read = read_event(&again).expect("the written value");
        assert_eq!(read, event);
    }
}
