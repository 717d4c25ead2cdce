//! Reads the interpreter of a script from its first line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of bytes of the first line that the kernel reads (Linux v6.12,
/// `include/uapi/linux/binfmts.h`, `BINPRM_BUF_SIZE`).
const MAX_LINE_BYTES: usize = 256;

/// Returns the programs that run a script: the interpreter, and for `env` also the program that it
/// starts. `None` if the file is not a script.
pub(super) fn interpreters(bytes: &[u8]) -> Option<Vec<PathBuf>> {
    let rest = bytes.strip_prefix(b"#!")?;
    let rest = &rest[..rest.len().min(MAX_LINE_BYTES)];
    let line = rest.split(|byte| *byte == b'\n').next()?;
    let mut words = line
        .split(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
        .filter(|word| !word.is_empty());
    let interpreter = Path::new(OsStr::from_bytes(words.next()?)).to_owned();
    let is_env = interpreter.file_name() == Some(OsStr::new("env"));
    let started = is_env.then(|| {
        // Options such as `-S`, and variables.
        words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))
    });
    let started = started
        .flatten()
        .and_then(|name| svclab_agent::find_program(std::str::from_utf8(name).ok()?));
    Some([interpreter].into_iter().chain(started).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_env_script_has_env_and_program() {
        let found = |text: &str| interpreters(text.as_bytes());
        let sh = || svclab_agent::find_program("sh").unwrap();
        let env = PathBuf::from("/usr/bin/env");
        assert_eq!(found("#! /bin/sh -e\n:"), Some(vec!["/bin/sh".into()]));
        for line in ["#!/usr/bin/env sh", "#!/usr/bin/env -S A=1 sh -e\n"] {
            assert_eq!(found(line), Some(vec![env.clone(), sh()]), "{line}");
        }
        assert_eq!(found("#!/usr/bin/env\n"), Some(vec![env]));
        assert_eq!(found("#!\n"), None);
        assert_eq!(found("\u{7f}ELF"), None);
    }
}
