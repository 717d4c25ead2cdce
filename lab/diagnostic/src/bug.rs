//! Panics: bugs in svclab. They end in an error that asks for a report, never in a
//! result.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::panic::{self, PanicHookInfo};
use std::sync::{Mutex, PoisonError};

/// What a user is asked to do.
pub const REMEDY: &str = "this is a bug in svclab: report it with this message, the command, and \
                          the files that it read";

/// What the last panic of this process said, and where; `None` before the first, or
/// where [`tell`] does not watch.
static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Tells of every panic by `print`, in place of the standard library's words on standard
/// error.
pub fn tell(print: fn(fmt::Arguments<'_>)) {
    panic::set_hook(Box::new(move |info| {
        let message = message(info);
        print(format_args!("error: {message}\nwhat to do: {REMEDY}"));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            print(format_args!("{backtrace}"));
        }
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
    }));
}

/// Whether anything panicked since [`tell`], in whichever thread or task.
#[must_use]
pub fn has_panicked() -> bool {
    last().is_some()
}

/// What work says that panicked with `payload`.
#[must_use]
pub fn message_of(payload: &(dyn Any + Send)) -> String {
    last().unwrap_or_else(|| format!("svclab panicked: {}", said(payload)))
}

fn last() -> Option<String> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// How an agent's last words begin that panicked.
const AGENT: &str = "svclab agent: svclab panicked";

/// The last words of an agent that panicked.
#[must_use]
pub fn of_agent(info: &PanicHookInfo<'_>) -> String {
    format!("svclab agent: {}", message(info))
}

/// Whether an agent that said this panicked.
#[must_use]
pub fn is_of_agent(said: &str) -> bool {
    said.contains(AGENT)
}

/// `svclab panicked at lab/run/execute.rs:12:5: attempt to add with overflow`.
fn message(info: &PanicHookInfo<'_>) -> String {
    let at = info
        .location()
        .map_or_else(String::new, |at| format!(" at {at}"));
    format!("svclab panicked{at}: {}", said(info.payload()))
}

fn said(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_payload_of_any_type_becomes_an_error() {
        let told = |work: fn()| {
            let payload = panic::catch_unwind(work).expect_err("it panics");
            message_of(payload.as_ref())
        };
        assert_eq!(told(|| panic!("plain")), "svclab panicked: plain");
        assert_eq!(told(|| panic!("with {}", 1)), "svclab panicked: with 1");
        let odd = told(|| panic::panic_any(7_u8));
        assert_eq!(odd, "svclab panicked: without a message");
    }
}
