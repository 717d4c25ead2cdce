//! Reports panics, which are bugs in svclab. A panic gives an error that asks for a bug report,
//! never a result.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::panic::{self, PanicHookInfo};
use std::sync::{Mutex, PoisonError};

/// Advice for the user after a panic.
pub const REMEDY: &str = "this is a bug in svclab: report it with this message, the command and \
                          its input files";

/// Message and location of the last panic of this process. `None` before the first panic, or if
/// [`install_panic_hook`] was not called.
static LAST_PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Installs a panic hook that reports each panic with `print`, instead of the standard output of
/// Rust.
pub fn install_panic_hook(print: fn(fmt::Arguments<'_>)) {
    panic::set_hook(Box::new(move |info| {
        let message = describe_panic(info);
        print(format_args!("error: {message}\nhelp: {REMEDY}"));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            print(format_args!("{backtrace}"));
        }
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
    }));
}

/// Whether any thread or task panicked since [`install_panic_hook`].
#[must_use]
pub fn has_panicked() -> bool {
    last_panic().is_some()
}

/// Returns the message for work that panicked with `payload`.
#[must_use]
pub fn panic_message(payload: &(dyn Any + Send)) -> String {
    last_panic().unwrap_or_else(|| format!("svclab panicked: {}", payload_text(payload)))
}

fn last_panic() -> Option<String> {
    LAST_PANIC
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Start of the last message of an agent that panicked.
const AGENT_PANIC_PREFIX: &str = "svclab agent: svclab panicked";

/// Formats the last message of an agent that panicked.
#[must_use]
pub fn agent_panic_message(info: &PanicHookInfo<'_>) -> String {
    format!("svclab agent: {}", describe_panic(info))
}

/// Whether the output of an agent shows a panic.
#[must_use]
pub fn is_agent_panic(output: &str) -> bool {
    output.contains(AGENT_PANIC_PREFIX)
}

/// Formats a panic: `svclab panicked at lab/run/execute.rs:12:5: attempt to add with overflow`.
fn describe_panic(info: &PanicHookInfo<'_>) -> String {
    let at = info
        .location()
        .map_or_else(String::new, |at| format!(" at {at}"));
    format!("svclab panicked{at}: {}", payload_text(info.payload()))
}

fn payload_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_payload_of_any_type_becomes_an_error() {
        let panic_message_of = |work: fn()| {
            let payload = panic::catch_unwind(work).expect_err("the closure panics");
            panic_message(payload.as_ref())
        };
        assert_eq!(
            panic_message_of(|| panic!("plain")),
            "svclab panicked: plain"
        );
        assert_eq!(
            panic_message_of(|| panic!("with {}", 1)),
            "svclab panicked: with 1"
        );
        let message = panic_message_of(|| panic::panic_any(7_u8));
        assert_eq!(message, "svclab panicked: without a message");
    }
}
