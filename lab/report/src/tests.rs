//! Helpers of the tests.

use crate::{Format, Options};
use svclab_runner::results::fixture;

/// Renders the example run in a format.
pub(crate) fn render_run(format: Format, options: Options<'_>) -> String {
    let mut out = Vec::new();
    let mut writer = format.writer(&mut out, options);
    for event in fixture::events() {
        writer.event(&event).expect("writing to a vector succeeds");
    }
    drop(writer);
    String::from_utf8(out).expect("text")
}
