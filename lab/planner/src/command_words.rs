//! Takes the words of commands apart.

use std::ffi::OsStr;
use std::path::Path;

/// Returns the name of a program from its path.
pub(crate) fn file_name(path: &str) -> &str {
    let name = Path::new(path).file_name().and_then(OsStr::to_str);
    name.unwrap_or(path)
}

/// Splits a command of iproute2 into its object, its verb and the words after it, without options.
/// Objects and verbs can be abbreviated.
pub(crate) fn split_iproute<'w>(words: &[&'w str]) -> Option<(&'w str, &'w str, Vec<&'w str>)> {
    let mut words = words.iter().copied();
    let object = loop {
        match words.next()? {
            // Options with a value.
            "-n" | "-netns" | "-f" | "-family" => {
                words.next();
            }
            option if option.starts_with('-') => {}
            object => break object,
        }
    };
    Some((object, words.next()?, words.collect()))
}

/// Whether a word is an abbreviation of another, or equal.
pub(crate) fn is_short_for(word: &str, full: &str) -> bool {
    !word.is_empty() && full.starts_with(word)
}
