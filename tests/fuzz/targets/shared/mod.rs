//! What holds of every dump, whatever is in it.

use svclab::dump::{File, Format, NodeDump, compare};
use svclab::scenario::Rendering;

/// A file of a dump is read or refused with messages that can be shown, and what
/// was read does not differ from itself.
pub fn dump(format: Format, bytes: &[u8]) -> Option<NodeDump> {
    let text = std::str::from_utf8(bytes).ok()?;
    let _ = Format::of_text(text);
    let read = NodeDump::read(vec![File {
        name: format.file_name().to_owned(),
        format: Some(format),
        text: text.to_owned(),
    }]);
    for diagnostic in &read.diagnostics {
        let said = diagnostic.render(&read.sources, Rendering::default());
        assert!(!said.contains('\u{1b}'), "an escape reaches the terminal");
    }
    let differences = compare(&read.dump, &read.dump);
    assert!(differences.is_empty(), "it differs from itself");
    let empty = NodeDump::read(vec![File {
        name: format.file_name().to_owned(),
        format: Some(format),
        text: String::new(),
    }]);
    let _ = compare(&read.dump, &empty.dump);
    let _ = compare(&empty.dump, &read.dump);
    read.is_whole().then_some(read.dump)
}
