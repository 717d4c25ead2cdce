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

fn is_nft(path: &str) -> bool {
    path.ends_with("nft")
}

/// Returns the paths of the read files and of the other files.
fn found(members: &[Vec<u8>]) -> (Vec<String>, Vec<String>) {
    let (files, other_paths) = read_files(&tarball(members), is_nft).unwrap();
    (
        files.into_iter().map(|file| file.path).collect(),
        other_paths,
    )
}

fn refused(bytes: &[u8]) -> String {
    read_files(bytes, is_nft).unwrap_err().to_string()
}

/// Tests that reading stops at the size limit instead of filling the memory.
#[test]
fn tarball_too_large_fails_before_unpacking() {
    let size = u64::try_from(MAX_BYTES).unwrap();
    let header = member_with_size("notes", PLAIN, "", &format!("{size:011o}"), b"");
    let member_of_zeros = || io::Cursor::new(header.clone()).chain(io::repeat(0).take(size));
    let endless = member_of_zeros()
        .chain(member_of_zeros())
        .chain(member_of_zeros())
        .chain(member_of_zeros())
        .chain(member_of_zeros());
    let refused = read(endless, is_nft);
    assert!(
        matches!(refused, Err(TarballError::TooLarge)),
        "{refused:?}"
    );
}

#[test]
fn tarball_files_are_read() {
    let (files, _) = read_files(&tarball_with_nft(), |_| true).unwrap();
    let file = TarballFile {
        path: "node-1/nft".to_owned(),
        bytes: b"abc".to_vec(),
    };
    assert_eq!(files, [file]);
    assert!(is_tarball(&tarball_with_nft()));
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
    let (files, other_paths) = found(&members);
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
        let (files, _) = found(&[before, member("cut", PLAIN, "", b"x")]);
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
    let (files, _) = read_files(&tarball(&members), is_nft).unwrap();
    let bytes: Vec<&[u8]> = files.iter().map(|file| file.bytes.as_slice()).collect();
    assert_eq!(bytes, [&b"abc"[..], b"d"]);
}

#[test]
fn tarball_of_several_gzip_members_is_read() {
    let whole = tarball_with_nft();
    let packed = [gzip(&whole[..700]), gzip(&whole[700..])].concat();
    assert_eq!(read_files(&packed, is_nft).unwrap().0.len(), 1);
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
    let many = vec![member("notes", PLAIN, "", b""); MAX_FILES + 1];
    let packed = gzip(&whole);
    let mut damaged = packed.clone();
    let sum = damaged.len() - 8;
    damaged[sum] ^= 1;
    let huge = member_with_size("nft", PLAIN, "", "77777777777", b"");
    let messages: Vec<String> = [
        &whole[..100],
        &whole[..600],
        &whole[..1024],
        &invalid,
        &[0x1f, 0x8b, 8, 0],
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
        &tarball(&many),
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
fn tarball_trailing_data_returns_error() {
    let whole = gzip(&tarball_with_nft());
    for trailing in [&b"x"[..], b"bytes without a gzip header", &[0; 512]] {
        let refused = refused(&[&whole, trailing].concat());
        assert_eq!(
            refused,
            "the tarball has data after its end; collect the dump again"
        );
    }
    let cut = refused(&whole[..whole.len() - 1]);
    assert!(cut.contains("truncated"), "{cut}");
}
