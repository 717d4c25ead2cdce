//! Fuzzes the reader of archives, also of archives in archives.

#![no_main]

use libfuzzer_sys::fuzz_target;
use svclab_dump::{archive, recognise};
use svclab_ruleset::text::limits::{MAX_BYTES, MAX_ENTRIES, MAX_FILES};

fuzz_target!(|bytes: &[u8]| {
    let mut input = bytes;
    let Ok(contents) = archive::read_files("bundle", &mut input, &recognise::select) else {
        return;
    };
    let (files, skipped) = (contents.files, contents.skipped);
    assert!(files.len() <= MAX_FILES, "too many files");
    assert!(files.len() + skipped.len() <= MAX_ENTRIES, "too many entries");
    let paths = files.iter().map(|file| &file.path);
    for path in paths.chain(skipped.iter().map(|file| &file.path)) {
        assert!(
            !path.contains(char::is_control),
            "a path contains control characters"
        );
    }
    for (index, file) in files.iter().enumerate() {
        assert!(file.bytes.len() <= MAX_BYTES, "a file above the size limit");
        let later_files = &files[index + 1..];
        assert!(
            later_files.iter().all(|other| other.path != file.path),
            "two files have the same name"
        );
    }
});
