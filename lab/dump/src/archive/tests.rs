use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

const PLAIN: u8 = b'0';
const LINK: u8 = b'1';
const SYMBOLIC: u8 = b'2';
const LONG: u8 = b'L';
const EXTENDED: u8 = b'x';

/// Returns a header and the data after it.
fn member_with_size(path: &str, kind: u8, to: &str, size: &str, bytes: &[u8]) -> Vec<u8> {
    let mut header = [0; 512];
    header[..path.len()].copy_from_slice(path.as_bytes());
    header[124..136].copy_from_slice(format!("{size}\0").as_bytes());
    header[148..156].fill(b' ');
    header[156] = kind;
    header[157..157 + to.len()].copy_from_slice(to.as_bytes());
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut block = header.to_vec();
    block.extend_from_slice(bytes);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

/// Returns a member with its path, kind, link target and content.
fn member(path: &str, kind: u8, to: &str, bytes: &[u8]) -> Vec<u8> {
    member_with_size(path, kind, to, &format!("{:011o}", bytes.len()), bytes)
}

fn tarball(members: &[Vec<u8>]) -> Vec<u8> {
    let mut padded = members.concat();
    padded.resize(padded.len() + 1024, 0);
    padded
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn tarball_with_nft() -> Vec<u8> {
    tarball(&[member("node-1/nft", PLAIN, "", b"abc")])
}

fn select_nft(path: &str, _: &[u8]) -> Result<(), Skipped> {
    if path.ends_with("nft") {
        Ok(())
    } else {
        Err(Skipped::without_effect("other"))
    }
}

fn read(bytes: &[u8]) -> Result<Contents, ArchiveError> {
    read_files("t", &mut &*bytes, &select_nft)
}

/// Returns the paths of the read files and of the other files.
fn found(bytes: &[u8]) -> (Vec<String>, Vec<String>) {
    let contents = read(bytes).unwrap();
    let name = |path: String| path.strip_prefix("t:").unwrap_or(&path).to_owned();
    (
        contents
            .files
            .into_iter()
            .map(|file| name(file.path))
            .collect(),
        contents
            .skipped
            .into_iter()
            .map(|file| name(file.path))
            .collect(),
    )
}

fn refused(bytes: &[u8]) -> String {
    read(bytes).unwrap_err().to_string()
}

fn limits() -> Limits {
    Limits {
        entries: 3,
        stream: 1 << 20,
        files: 2,
        unpacked: 1000,
    }
}

#[test]
fn archive_too_large_fails_before_unpacking() {
    let nft = |name: &str, size: usize| member(name, PLAIN, "", &vec![b'x'; size]);
    let notes = vec![member("notes", PLAIN, "", b""); 4];
    let zeros = tarball(&[member("notes", PLAIN, "", &vec![0; 1 << 20])]);
    for archive in [
        tarball(&notes),
        tarball(&[nft("a/nft", 1), nft("b/nft", 1), nft("c/nft", 1)]),
        tarball(&[nft("a/nft", 600), nft("b/nft", 600)]),
        gzip(&zeros),
        // The compressed data is small at each level.
        tarball(&[member("a.gz", PLAIN, "", &gzip(&gzip(&zeros)))]),
    ] {
        let refused = read_limited("t", &mut &*archive, &select_nft, &limits(), false);
        assert!(
            matches!(refused, Err(ArchiveError::TooLarge)),
            "{refused:?}"
        );
    }
    let small = tarball(&[
        nft("a/nft", 500),
        nft("b/nft", 500),
        member("notes", PLAIN, "", b""),
    ]);
    assert!(read_limited("t", &mut &*small, &select_nft, &limits(), false).is_ok());
}

#[test]
fn archive_large_file_of_dump_is_refused() {
    let size = u64::try_from(MAX_BYTES).unwrap() + 1;
    let header = member_with_size("nft", PLAIN, "", &format!("{size:011o}"), b"");
    let mut endless = io::Cursor::new(header).chain(io::repeat(b'x'));
    let refused = read_files("t", &mut endless, &select_nft).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "t:nft is larger than 64 MiB, the maximum size of a dump file"
    );
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let options = lzma_rust2::XzOptions::with_preset(1);
    let mut packed = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    ruzstd::encoding::compress_to_vec(bytes, level)
}

fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
    for (name, bytes) in files {
        let options = zip::write::SimpleFileOptions::default();
        writer.start_file(*name, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

#[test]
fn archive_of_each_packing_is_read() {
    let whole = tarball_with_nft();
    let skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc";
    for packed in [
        gzip(&whole),
        zstd(&whole),
        [&skippable[..], &zstd(&whole[..700]), &zstd(&whole[700..])].concat(),
        xz(&whole),
        [xz(&whole[..700]), xz(&whole[700..])].concat(),
        zip(&[("node-1/nft", b"abc")]),
        zip(&[("node-1\\nft", b"abc")]),
        gzip(&zip(&[("node-1/nft", b"abc")])),
    ] {
        let contents = read(&packed).unwrap();
        let files: Vec<(&str, &[u8])> = contents
            .files
            .iter()
            .map(|file| (file.path.as_str(), file.bytes.as_slice()))
            .collect();
        assert_eq!(files, [("t:node-1/nft", &b"abc"[..])]);
        assert!(contents.is_archive);
    }
}

#[test]
fn archive_inside_archive_is_read() {
    let inner = gzip(&tarball_with_nft());
    let damaged = &inner[..inner.len() / 2];
    let whole = tarball(&[
        member("a/info.tgz", PLAIN, "", &inner),
        member("b.zip", PLAIN, "", &zip(&[("x/nft", b"x"), ("notes", b"")])),
        member(
            "c/nft.gz",
            PLAIN,
            "",
            &gzip(b"no file of this name is selected"),
        ),
        member("damaged.tgz", PLAIN, "", damaged),
        member("d/nft", PLAIN, "", b"abc"),
    ]);
    assert_eq!(
        found(&xz(&whole)),
        (
            vec![
                "a/info.tgz:node-1/nft".to_owned(),
                "b.zip:x/nft".to_owned(),
                "d/nft".to_owned()
            ],
            vec![
                "b.zip:notes".to_owned(),
                "c/nft.gz".to_owned(),
                "damaged.tgz".to_owned()
            ]
        )
    );
}

#[test]
fn archive_nested_too_deeply_is_skipped() {
    let mut packed = b"x".to_vec();
    for _ in 0..=MAX_DEPTH {
        packed = gzip(&packed);
    }
    let contents = read(&packed).unwrap();
    assert_eq!(contents.files, []);
    assert_eq!(
        contents.skipped[0].skipped.reason,
        "too many archives are inside each other"
    );
}

#[test]
fn single_compressed_file_is_read() {
    for packed in [
        gzip(b"*nat\n"),
        zstd(b"*nat\n"),
        xz(b"*nat\n"),
        b"*nat\n".to_vec(),
    ] {
        let contents = read(&packed).unwrap();
        assert_eq!(contents.files[0].bytes, b"*nat\n");
        assert!(!contents.is_archive);
    }
}

#[test]
fn zip_with_repeated_path_is_refused() {
    let mut archive = zip(&[("a/nft", b"x"), ("b/nft", b"y")]);
    let mut index = 0;
    while let Some(next) = archive[index..].windows(5).position(|w| w == b"b/nft") {
        index += next;
        archive[index] = b'a';
    }
    assert!(refused(&archive).contains("twice"));
}

#[test]
fn tarball_files_are_read() {
    let contents = read(&tarball_with_nft()).unwrap();
    let file = ArchiveFile {
        path: "t:node-1/nft".to_owned(),
        bytes: b"abc".to_vec(),
    };
    assert_eq!(contents.files, [file]);
}

#[test]
fn tarball_path_is_sanitized_for_display() {
    let names = [
        "../../etc/nft",
        "/etc/nft",
        "a\u{1b}[2J/nft",
        "b\u{202e}\nnft",
        "notes",
    ];
    let members = names.map(|name| member(name, PLAIN, "", b"x"));
    let (files, other_paths) = found(&tarball(&members));
    assert_eq!(
        files,
        [
            "../../etc/nft",
            "/etc/nft",
            "a\u{fffd}[2J/nft",
            "b\u{fffd}\u{fffd}nft"
        ]
    );
    assert_eq!(other_paths, ["notes"]);
}

#[test]
fn tarball_long_path_header_is_applied() {
    let long = format!("{}/nft", "a".repeat(300));
    let record = format!("314 path={long}\n");
    let gnu = || member("././@LongLink", LONG, "", format!("{long}\0").as_bytes());
    let pax = |record: &str| member("PaxHeaders/nft", EXTENDED, "", record.as_bytes());
    for before in [
        gnu(),
        pax(&record),
        // GNU tar writes other pax records after its own long name header.
        [gnu(), pax("20 atime=1700000000\n")].concat(),
    ] {
        let (files, _) = found(&tarball(&[before, member("cut", PLAIN, "", b"x")]));
        assert_eq!(files.concat(), long);
    }
}

#[test]
fn tarball_pax_size_is_applied() {
    let members = [
        member("PaxHeaders/nft", EXTENDED, "", b"9 size=3\n"),
        member_with_size("nft", PLAIN, "", "00000000000", b"abc"),
        member("b/nft", PLAIN, "", b"d"),
    ];
    let contents = read(&tarball(&members)).unwrap();
    let bytes: Vec<&[u8]> = contents
        .files
        .iter()
        .map(|file| file.bytes.as_slice())
        .collect();
    assert_eq!(bytes, [&b"abc"[..], b"d"]);
}

#[test]
fn tarball_of_several_gzip_members_is_read() {
    let whole = tarball_with_nft();
    let packed = [gzip(&whole[..700]), gzip(&whole[700..])].concat();
    assert_eq!(read(&packed).unwrap().files.len(), 1);
}

#[test]
fn tarball_invalid_returns_error() {
    let whole = tarball_with_nft();
    let mut invalid = whole.clone();
    invalid[0] = b'x';
    let nft_member = |path| member(path, PLAIN, "", b"abc");
    let single = |kind| tarball(&[member("node-1/nft", kind, "/etc/passwd", b"")]);
    let pax = |records: &[u8]| {
        tarball(&[
            member("PaxHeaders/nft", EXTENDED, "", records),
            member("nft", PLAIN, "", b"x"),
        ])
    };
    let packed = gzip(&whole);
    let mut damaged = packed.clone();
    let sum = damaged.len() - 8;
    damaged[sum] ^= 1;
    let huge = member_with_size("nft", PLAIN, "", "77777777777", b"");
    let messages: Vec<String> = [
        &whole[..600],
        &whole[..1024],
        &invalid,
        &[0x1f, 0x8b, 8, 0],
        b"\xfd7zXZ\0",
        b"\x28\xb5\x2f\xfd",
        b"PK\x03\x04",
        &packed[..packed.len() / 2],
        &packed[..packed.len() - 8],
        &damaged,
        &[packed.clone(), gzip(b"more")].concat(),
        &[whole.clone(), whole.clone()].concat(),
        &single(LINK),
        &single(SYMBOLIC),
        &single(b'3'),
        &single(b'6'),
        &tarball(&[nft_member("node-1/nft"), nft_member("node-1/nft")]),
        &tarball(&[nft_member("node-1/nft"), nft_member("./node-1//nft")]),
        &tarball(&[huge]),
        &pax(b"26 size=18446744073709551615\n"),
        &pax(b"26 comment=x\n13 path=evil\n"),
        &pax(b"14 path=a/nft\n14 path=b/nft\n"),
        &pax(b"22 GNU.sparse.major=1\n"),
    ]
    .iter()
    .map(|bytes| refused(bytes))
    .collect();
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn tarball_link_to_file_of_tarball_is_ignored() {
    let whole = tarball(&[
        member("r/sos/nft", PLAIN, "", b"abc"),
        member("r/nft", SYMBOLIC, "./sos/nft", b""),
        member("r/x/nft", SYMBOLIC, "../sos/nft", b""),
        member("hard-nft", LINK, "r/sos/nft", b""),
        member("r/notes", SYMBOLIC, "/etc/notes", b""),
    ]);
    let (files, others) = found(&whole);
    assert_eq!(
        (files, others),
        (vec!["r/sos/nft".to_owned()], vec!["r/notes".to_owned()])
    );
}

#[test]
fn tarball_trailing_data_returns_error() {
    let whole = gzip(&tarball_with_nft());
    for trailing in [&b"x"[..], b"bytes without a gzip header", &[0; 512]] {
        let refused = refused(&[&whole, trailing].concat());
        assert_eq!(
            refused,
            "the archive has data after its end; collect the dump again"
        );
    }
    let cut = refused(&whole[..whole.len() - 1]);
    assert!(cut.contains("truncated"), "{cut}");
}
