//! Fuzzes the reader of bundle tarballs.

#![no_main]

use libfuzzer_sys::fuzz_target;
use svclab_dump::tarball;
use svclab_ruleset::text::limits::{MAX_BYTES, MAX_FILES};

fuzz_target!(|bytes: &[u8]| {
    let _ = tarball::is_tarball(bytes);
    let wanted = |path: &str| path.ends_with("-save") || path.ends_with("ip-addr");
    let Ok((files, others)) = tarball::read_files(bytes, wanted) else {
        return;
    };
    assert!(files.len() + others.len() <= MAX_FILES, "too many files");
    for path in files.iter().map(|file| &file.path).chain(&others) {
        assert!(
            !path.contains(char::is_control),
            "a path contains control characters"
        );
    }
    for (index, file) in files.iter().enumerate() {
        assert!(wanted(&file.path), "an unknown file");
        assert!(file.bytes.len() <= MAX_BYTES, "a file above the size limit");
        let later_files = &files[index + 1..];
        assert!(
            later_files.iter().all(|other| other.path != file.path),
            "two files have the same name"
        );
    }
});
