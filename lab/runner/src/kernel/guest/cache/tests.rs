//! Tests of the cache.

use super::*;

fn cache() -> (tempfile::TempDir, Cache) {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path().join("cache")).unwrap();
    (directory, cache)
}

fn store_entry(cache: &Cache, key: &str, text: &str) -> CacheEntry<u32> {
    let new_directory = cache.new_entry_directory("things", key).unwrap();
    fs::write(new_directory.path().join("thing"), text).unwrap();
    cache.store("things", key, new_directory, 7).unwrap()
}

/// Only root can change the owner of a directory.
#[test]
fn open_cache_of_other_writers_returns_error() {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
    let (directory, cache) = cache();
    let render = |result: Result<Cache, GuestError>| {
        let error = result.unwrap_err();
        let text = format!("{error}\n{}", error.remedy().unwrap_or_default());
        text.replace(&directory.path().display().to_string(), "DIR")
    };
    let open = || Cache::open(cache.directory.clone());
    let locks = cache.directory.join("locks");
    for mode in [0o775, 0o757, 0o1777] {
        fs::set_permissions(&locks, fs::Permissions::from_mode(mode)).unwrap();
        assert!(render(open()).contains("is writable by other users"));
    }
    insta::assert_snapshot!(render(open()), @r"
    the cache DIR/cache/locks is writable by other users: its mode is 777
    run `chmod -R go-w DIR/cache/locks`, or set SVCLAB_CACHE to a directory that you own
    ");
    fs::remove_dir(&locks).unwrap();
    symlink("making", &locks).unwrap();
    insta::assert_snapshot!(render(open()), @r"
    the cache DIR/cache/locks is not a directory
    remove DIR/cache/locks, or set SVCLAB_CACHE to a directory that you own
    ");
    fs::remove_file(&locks).unwrap();
    let linked = directory.path().join("linked");
    symlink(&cache.directory, &linked).unwrap();
    Cache::open(linked).unwrap();
    if nix::unistd::geteuid().is_root() {
        chown(&cache.directory, Some(1000), Some(1000)).unwrap();
        insta::assert_snapshot!(render(open()), @r"
        the cache DIR/cache belongs to the user 1000, not to the user 0 who runs svclab
        run svclab as that user, set SVCLAB_CACHE to a directory that you own, or, if you trust its contents, run `chown -R 0 DIR/cache`
        ");
    }
}

#[test]
fn find_directory_follows_environment() {
    let directory_of = |set: &[(&str, &str)], root| {
        let variable = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).into())
        };
        find_directory(variable, root)
            .ok()
            .map(|path| path.to_string_lossy().into_owned())
    };
    let variables = [
        ("SVCLAB_CACHE", "/c"),
        ("XDG_CACHE_HOME", "/x"),
        ("HOME", "/h"),
    ];
    assert_eq!(directory_of(&variables, false).as_deref(), Some("/c"));
    assert_eq!(
        directory_of(&variables[1..], false).as_deref(),
        Some("/x/svclab")
    );
    assert_eq!(
        directory_of(&variables[2..], true).as_deref(),
        Some("/h/.cache/svclab")
    );
    assert_eq!(
        directory_of(&[("HOME", "")], true).as_deref(),
        Some("/var/cache/svclab")
    );
    assert_eq!(directory_of(&[], false), None);
}

#[test]
fn entry_is_stored_found_and_replaced() {
    let (_directory, cache) = cache();
    assert_eq!(cache.entry::<u32>("things", "a"), None);
    let kept = store_entry(&cache, "a", "one");
    assert_eq!(cache.entry("things", "a"), Some(kept));
    // The second call uses the identities that the first one stored.
    assert_eq!(cache.entry::<u32>("things", "a").unwrap().bytes, 3);
    store_entry(&cache, "a", "three");
    assert_eq!(cache.entry::<u32>("things", "a").unwrap().bytes, 5);
    assert_eq!(cache.keys("things"), ["a"]);
    cache.remove("things", "a").unwrap();
    assert_eq!(cache.entry::<u32>("things", "a"), None);
    assert!(
        fs::read_dir(cache.directory.join("making"))
            .unwrap()
            .next()
            .is_none()
    );
}

#[test]
fn entry_damaged_returns_none() {
    let (_directory, cache) = cache();
    for damage in ["eno", "", "one and more"] {
        let kept = store_entry(&cache, "a", "one");
        assert!(cache.entry::<u32>("things", "a").is_some());
        let file = kept.directory.join("thing");
        let before = FileIdentity::from_file(&file).unwrap();
        while FileIdentity::from_file(&file).unwrap() == before {
            fs::write(&file, damage).unwrap();
        }
        assert_eq!(cache.entry::<u32>("things", "a"), None, "{damage}");
    }
    let kept = store_entry(&cache, "a", "one");
    fs::remove_file(kept.directory.join("thing")).unwrap();
    assert_eq!(cache.entry::<u32>("things", "a"), None);
    let kept = store_entry(&cache, "a", "one");
    fs::write(kept.directory.join(MANIFEST), "{").unwrap();
    assert_eq!(cache.entry::<u32>("things", "a"), None);
}

#[test]
fn new_entry_directory_removes_stale_directories() {
    let (_directory, cache) = cache();
    let stale = cache.new_entry_directory("things", "a").unwrap().keep();
    let other_entry = cache.new_entry_directory("things", "b").unwrap();
    let _made = cache.new_entry_directory("things", "a").unwrap();
    assert!(!stale.exists() && other_entry.path().exists());
}

#[tokio::test]
async fn lock_has_one_holder() {
    let (_directory, cache) = cache();
    let lock = cache.lock("things", "a").await.unwrap();
    assert!(cache.try_lock("things", "a").unwrap().is_none());
    assert!(cache.try_lock("things", "b").unwrap().is_some());
    drop(lock);
    assert!(cache.try_lock("things", "a").unwrap().is_some());
}

#[tokio::test]
async fn lock_dropped_is_free_although_child_has_file() {
    let (_directory, cache) = cache();
    let lock = cache.lock("things", "a").await.unwrap();
    // Stands for the copy of a child before it executes its program.
    let copy = lock.0.try_clone().unwrap();
    drop(lock);
    assert!(cache.try_lock("things", "a").unwrap().is_some());
    drop(copy);
}

#[tokio::test]
async fn lock_waits_until_holder_releases_it() {
    let (_directory, cache) = cache();
    let lock = cache.lock("things", "a").await.unwrap();
    let (first, second) = (cache.clone(), cache.clone());
    let abandoned = tokio::spawn(async move { first.lock("things", "a").await });
    let waiting = tokio::spawn(async move { second.lock("things", "a").await });
    tokio::task::yield_now().await;
    assert!(!abandoned.is_finished() && !waiting.is_finished());
    // A caller that stops to wait does not keep the lock.
    abandoned.abort();
    assert!(abandoned.await.unwrap_err().is_cancelled());
    drop(lock);
    waiting.await.unwrap().unwrap();
}
