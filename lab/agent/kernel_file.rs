//! Reading a file of the kernel's that is small and read often.

use std::fs::File;
use std::io::{self, Read as _};

/// The size in bytes of the first read, which holds most of these files.
/// [`std::fs::read_to_string`] begins with 32 bytes, because the kernel gives the size of
/// such a file as 0.
const FIRST: usize = 4096;

/// What the file says; nothing if the kernel has no such file.
pub fn read(path: &str) -> String {
    let text = read_bytes(path).unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

fn read_bytes(path: &str) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut text = vec![0; FIRST];
    let mut length = 0;
    loop {
        match file.read(&mut text[length..])? {
            0 => break,
            read => length += read,
        }
        if length == text.len() {
            text.resize(2 * length, 0);
        }
    }
    text.truncate(length);
    Ok(text)
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
