//! Where the system keeps its data.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// A folder for data; one of its own making is removed in the end.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    is_ours: bool,
}

impl Folder {
    /// The named folder, which stays, or a new one, which is removed.
    pub(crate) fn open(named: Option<&Path>) -> io::Result<Self> {
        let is_ours = named.is_none();
        let path = named.map_or_else(new_path, Path::to_owned);
        let attempted = |what: &str, error: &io::Error| {
            io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
        };
        fs::create_dir_all(&path).map_err(|error| attempted("creating the folder", &error))?;
        let probe = path.join("writable");
        let written = fs::write(&probe, b"").and_then(|()| fs::remove_file(&probe));
        written.map_err(|error| attempted("writing into the folder", &error))?;
        let path = path
            .canonicalize()
            .map_err(|error| attempted("resolving the folder", &error))?;
        Ok(Self { path, is_ours })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the data stay.
    pub(crate) fn stays(&self) -> bool {
        !self.is_ours
    }

    /// Keeps what a run has left that has failed: data and logs show why. An empty folder shows
    /// nothing.
    pub(crate) fn keep(&mut self) {
        let mut entries = fs::read_dir(&self.path).into_iter().flatten();
        self.is_ours &= entries.next().is_none();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_ours {
            // What can't be removed is in the folder for temporary files.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn new_path() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = match COUNT.fetch_add(1, Ordering::Relaxed) {
        0 => format!("paceline-{}", std::process::id()),
        count => format!("paceline-{}-{count}", std::process::id()),
    };
    std::env::temp_dir().join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_its_own_is_removed_and_a_named_one_stays() {
        let named = new_path().with_extension("named");
        let folder = Folder::open(Some(&named)).expect("a folder");
        assert!(folder.stays());
        drop(folder);
        assert!(named.is_dir());
        fs::remove_dir(&named).expect("it is empty");
        let own = Folder::open(None).expect("a folder");
        let path = own.path().to_owned();
        drop(own);
        assert!(!path.exists());
    }

    /// The logs of a failed run were removed with its folder.
    #[test]
    fn the_folder_of_a_failed_run_stays_if_something_is_in_it() {
        let mut folder = Folder::open(None).expect("a folder");
        folder.keep();
        assert!(!folder.stays(), "it is empty");
        let path = folder.path().to_owned();
        fs::write(path.join("front.log"), "why").expect("a log");
        folder.keep();
        drop(folder);
        assert!(path.join("front.log").exists());
        fs::remove_dir_all(&path).expect("it is there");
    }

    #[test]
    fn a_folder_that_can_not_be_written_is_named() {
        let file = new_path().with_extension("file");
        fs::write(&file, b"").expect("a file");
        let error = Folder::open(Some(&file.join("below"))).expect_err("it is a file");
        assert!(
            error.to_string().starts_with("creating the folder"),
            "{error}"
        );
        fs::remove_file(&file).expect("it is there");
    }
}
