//! Tests of reading and writing files.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode};

use super::*;

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let lab = directory.path().join("lab");
    fs::create_dir_all(lab.join("in")).unwrap();
    fs::write(directory.path().join("secret"), "secret").unwrap();
    fs::write(lab.join("in/file"), "file").unwrap();
    symlink("in/file", lab.join("inside")).unwrap();
    symlink("../secret", lab.join("outside")).unwrap();
    symlink("..", lab.join("up")).unwrap();
    symlink("loop", lab.join("loop")).unwrap();
    symlink(directory.path().join("secret"), lab.join("absolute")).unwrap();
    rustix::fs::mknodat(CWD, lab.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    directory
}

fn read(location: &Location) -> Result<(String, bool), String> {
    match location.read(100) {
        Ok((bytes, linked)) => Ok((String::from_utf8(bytes).unwrap(), linked.is_some())),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn location_below_does_not_leave_its_directory() {
    let directory = directory();
    let lab = directory.path().join("lab");
    let read = |path: &str| read(&Location::below(&lab, path));
    assert_eq!(read("in/file"), Ok(("file".to_owned(), false)));
    assert_eq!(read("in/../in/file"), Ok(("file".to_owned(), false)));
    assert_eq!(read("inside"), Ok(("file".to_owned(), true)));
    let secret = directory.path().join("secret").display().to_string();
    for path in [
        "../secret",
        "in/../../secret",
        "outside",
        "absolute",
        "up/secret",
        "/dev/stdin",
        "/proc/self/fd/0",
        &secret,
    ] {
        assert_eq!(
            read(path),
            Err("the path is outside the lab's directory".to_owned()),
            "{path}"
        );
    }
    assert_eq!(
        read("pipe"),
        Err("not a regular file but a named pipe".to_owned())
    );
    assert_eq!(read("in"), Err("is a directory".to_owned()));
    assert!(read("loop").unwrap_err().contains("symbolic links"));
    assert!(
        Location::below(&lab, "none")
            .read(1)
            .unwrap_err()
            .is_missing()
    );
}

#[test]
fn location_anywhere_names_the_file_behind_a_link() {
    let directory = directory();
    let location = |path: &str| Location::anywhere(directory.path().join("lab").join(path));
    assert_eq!(read(&location("outside")), Ok(("secret".to_owned(), true)));
    assert_eq!(
        read(&location("up/secret")),
        Ok(("secret".to_owned(), true))
    );
    let (_, linked) = location("outside").read(100).unwrap();
    assert_eq!(linked, directory.path().join("secret").canonicalize().ok());
    for (path, what) in [("/dev/zero", "a device"), ("/dev/null", "a device")] {
        assert_eq!(
            read(&Location::anywhere(path)),
            Err(format!("not a regular file but {what}"))
        );
    }
    // A regular file of unknown size.
    let (bytes, _) = Location::anywhere("/proc/self/environ").read(3).unwrap();
    assert!(bytes.len() <= 4);
}

#[test]
fn write_replaces_files_and_nothing_else() {
    let directory = directory();
    let lab = directory.path().join("lab");
    let write_text = |name: &str, text: &str| {
        write_file(&lab.join(name), |out| out.write_all(text.as_bytes()))
            .map_err(|error| error.to_string())
    };
    assert_eq!(write_text("new", "1"), Ok(()));
    assert_eq!(write_text("new", "2"), Ok(()));
    assert_eq!(fs::read_to_string(lab.join("new")).unwrap(), "2");
    for name in ["outside", "inside", "loop", "absolute"] {
        let refused = "the target is a symbolic link, which svclab does not follow";
        assert_eq!(write_text(name, "x"), Err(refused.to_owned()));
    }
    for name in ["pipe", "in"] {
        let refused = "the target exists and is not a regular file";
        assert_eq!(write_text(name, "x"), Err(refused.to_owned()));
    }
    assert_eq!(
        fs::read_to_string(directory.path().join("secret")).unwrap(),
        "secret"
    );
    assert!(create_output_directory(&lab.join("up")).is_err());
    assert!(create_output_directory(&lab.join("a/b")).is_ok());
}

#[test]
fn write_failure_keeps_existing_file() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("half");
    fs::write(&place, "before").unwrap();
    let error = write_file(&place, |out| {
        out.write_all(b"half")?;
        Err(io::ErrorKind::StorageFull.into())
    });
    assert!(error.is_err());
    assert_eq!(fs::read_to_string(&place).unwrap(), "before");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}
