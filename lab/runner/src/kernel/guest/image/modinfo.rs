//! Reads the metadata of a kernel module from its file, and prepares the file for a guest.

use std::io::{self, Read as _};
use std::path::Path;

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _};

/// Mark that follows the signature at the end of a signed module (Linux v6.12,
/// `include/linux/module_signature.h`, `MODULE_SIG_STRING`).
const SIGNATURE_MARK: &[u8] = b"~Module signature appended~\n";

/// Size of the description of the signature before that mark, in bytes (`struct module_signature`).
/// Its last 4 bytes are the length of the signature.
const SIGNATURE_INFO_SIZE: usize = 12;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Modinfo {
    /// Names of the modules that it depends on.
    pub depends: Vec<String>,
    /// Names by which the kernel requests it, including patterns.
    pub aliases: Vec<String>,
}

/// Returns the name of a module by its file: `xt_comment` for `xt_comment.ko.xz`. The kernel writes
/// every `-` as `_`. `None` if the file is not a module.
pub(super) fn module_name(file: &Path) -> Option<String> {
    let file = file.file_name()?.to_str()?;
    let (stem, rest) = file.split_once(".ko")?;
    matches!(rest, "" | ".xz" | ".zst" | ".gz").then(|| stem.replace('-', "_"))
}

/// Reads the file of a module, decompressed if necessary.
pub(super) fn read_module(file: &Path) -> io::Result<Vec<u8>> {
    let packed = std::fs::read(file)?;
    let mut bytes = Vec::new();
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => {
            lzma_rust2::XzReader::new(packed.as_slice(), true).read_to_end(&mut bytes)?;
        }
        Some("zst") => {
            ruzstd::decoding::StreamingDecoder::new(packed.as_slice())
                .map_err(io::Error::other)?
                .read_to_end(&mut bytes)?;
        }
        Some("gz") => {
            flate2::read::MultiGzDecoder::new(packed.as_slice()).read_to_end(&mut bytes)?;
        }
        _ => bytes = packed,
    }
    Ok(bytes)
}

/// Returns the module without its signature. Checking signatures would add 0.5 s to the boot of a
/// guest, and the files come from a package whose digest was verified.
pub(super) fn without_signature(module: &[u8]) -> &[u8] {
    let Some(before) = module.strip_suffix(SIGNATURE_MARK) else {
        return module;
    };
    let Some((rest, signature_info)) = before.split_last_chunk::<SIGNATURE_INFO_SIZE>() else {
        return module;
    };
    let [.., a, b, c, d] = *signature_info;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    rest.len()
        .checked_sub(length)
        .map_or(module, |end| &rest[..end])
}

/// Parses the metadata of a decompressed module.
pub(super) fn parse(module: &[u8]) -> Result<Modinfo, object::Error> {
    let elf = ElfFile64::<object::Endianness>::parse(module)?;
    let mut info = Modinfo::default();
    let Some(section) = elf.section_by_name(".modinfo") else {
        return Ok(info);
    };
    for entry in section.data()?.split(|byte| *byte == 0) {
        let entry = String::from_utf8_lossy(entry);
        match entry.split_once('=') {
            Some(("depends", names)) => info.depends.extend(
                names
                    .split(',')
                    .filter(|name| !name.is_empty())
                    .map(|name| name.replace('-', "_")),
            ),
            Some(("alias", name)) => info.aliases.push(name.to_owned()),
            _ => {}
        }
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_name_is_derived_from_file_name() {
        let name_of = |file| module_name(Path::new(file));
        assert_eq!(name_of("a/xt-comment.ko.xz").as_deref(), Some("xt_comment"));
        assert_eq!(name_of("ip_vs.ko").as_deref(), Some("ip_vs"));
        assert_eq!(name_of("veth.ko.zst").as_deref(), Some("veth"));
        assert_eq!(name_of("modules.dep"), None);
        assert_eq!(name_of("x.ko.debug"), None);
    }

    #[test]
    fn without_signature_removes_only_the_signature() {
        let mut module = b"ELF and all".to_vec();
        assert_eq!(without_signature(&module), b"ELF and all");
        module.extend(b"signature");
        module.extend([0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        module.extend(SIGNATURE_MARK);
        assert_eq!(without_signature(&module), b"ELF and all");
        // Impossible length.
        let index = module.len() - SIGNATURE_MARK.len() - 1;
        module[index] = 200;
        assert_eq!(without_signature(&module), module);
    }

    #[test]
    fn read_module_decompresses_every_format() {
        use std::io::Write as _;
        let directory = tempfile::tempdir().unwrap();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(b"the module").unwrap();
        let file = directory.path().join("a.ko.gz");
        std::fs::write(&file, packed.finish().unwrap()).unwrap();
        assert_eq!(read_module(&file).unwrap(), b"the module");
        let file = directory.path().join("a.ko.zst");
        let zst = ruzstd::encoding::compress_to_vec(
            b"the module".as_slice(),
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        std::fs::write(&file, zst).unwrap();
        assert_eq!(read_module(&file).unwrap(), b"the module");
        let file = directory.path().join("a.ko.xz");
        std::fs::write(&file, b"not xz").unwrap();
        assert!(read_module(&file).is_err());
    }

    #[test]
    fn parse_other_file_returns_error() {
        assert!(parse(b"#!/bin/sh\n").is_err());
    }
}
