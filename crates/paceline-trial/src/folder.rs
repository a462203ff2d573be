//! A folder that is gone when its owner is.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// A folder that is gone when its owner is.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a folder with a short name: the path of a Unix socket in it has at most 107 bytes.
    ///
    /// # Errors
    /// If the folder can't be made.
    pub fn new() -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("paceline-trial-{}-{number}", std::process::id());
        let path = env::temp_dir().join(name);
        // A process of the same number has left it.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What remains is in the system's folder for such things.
        let _ = fs::remove_dir_all(&self.0);
    }
}
