//! Reads small kernel files that are read often.

use std::fs::File;
use std::io::Read as _;

/// Size in bytes of the first read, which covers most of these files. [`std::fs::read_to_string`]
/// starts with 32 bytes, because the kernel reports 0 as the size of such a file.
const FIRST_READ_BYTES: usize = 4096;

/// Returns the contents of the file, or an empty string if the file cannot be read.
pub(crate) fn read(path: &str) -> String {
    let mut text = Vec::with_capacity(FIRST_READ_BYTES);
    // `Take` does not query the size of the file.
    let read = File::open(path).and_then(|file| file.take(u64::MAX).read_to_end(&mut text));
    if read.is_err() {
        text.clear();
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_file_longer_than_page_is_read_completely() {
        const PATH: &str = "/proc/kallsyms";
        assert!(read(PATH) == std::fs::read_to_string(PATH).unwrap());
    }

    #[test]
    fn missing_kernel_file_is_empty() {
        assert_eq!(read("/proc/nowhere"), "");
    }
}
