//! A file of the kernel's that is read often: opened once, and read anew from its beginning.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

/// The size in bytes of the first read, which holds most of these files.
const FIRST: usize = 4096;

/// A file by its path.
pub struct KernelFile {
    path: &'static str,
    file: OnceLock<Option<File>>,
}

impl KernelFile {
    pub const fn new(path: &'static str) -> Self {
        Self {
            path,
            file: OnceLock::new(),
        }
    }

    /// What the file says now; nothing if the kernel has no such file.
    pub fn read(&self) -> String {
        let file = self.file.get_or_init(|| File::open(self.path).ok());
        let text = file.as_ref().and_then(|file| read(file).ok());
        // A file that was opened in a namespace which is gone can be read no more.
        let text = text.or_else(|| fs::read(self.path).ok());
        String::from_utf8_lossy(&text.unwrap_or_default()).into_owned()
    }
}

fn read(file: &File) -> io::Result<Vec<u8>> {
    let mut text = vec![0; FIRST];
    let mut length = 0;
    loop {
        match file.read_at(&mut text[length..], length as u64)? {
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
    fn kernel_file_is_read_anew_each_time() {
        let file = KernelFile::new("/proc/uptime");
        let uptime = || -> f64 { file.read().split(' ').next().unwrap().parse().unwrap() };
        let first = uptime();
        // It is told in hundredths of a second.
        while uptime() <= first {}
    }

    #[test]
    fn kernel_file_longer_than_a_page_is_read_whole() {
        const PATH: &str = "/proc/kallsyms";
        assert_eq!(
            KernelFile::new(PATH).read(),
            std::fs::read_to_string(PATH).unwrap()
        );
    }

    #[test]
    fn kernel_file_that_is_missing_is_empty() {
        assert_eq!(KernelFile::new("/proc/nowhere").read(), "");
    }
}
