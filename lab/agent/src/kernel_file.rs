//! Reading a file of the kernel's that is small and read often.

use std::fs::File;
use std::io::Read as _;

/// The size in bytes of the first read, which holds most of these files.
/// [`std::fs::read_to_string`] begins with 32 bytes, because the kernel gives the size of
/// such a file as 0.
const FIRST: usize = 4096;

/// Returns the contents of the file; nothing if the kernel has no such file.
pub fn read(path: &str) -> String {
    let mut text = Vec::with_capacity(FIRST);
    // `Take` does not ask for the size of the file.
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
    fn kernel_file_longer_than_a_page_is_read_whole() {
        const PATH: &str = "/proc/kallsyms";
        assert!(read(PATH) == std::fs::read_to_string(PATH).unwrap());
    }

    #[test]
    fn kernel_file_that_is_missing_is_empty() {
        assert_eq!(read("/proc/nowhere"), "");
    }
}
