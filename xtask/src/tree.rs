//! A snapshot of the project's files in memory: what is checked cannot change while it is checked, and a
//! made-up tree needs no disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use xtask_common::run;

/// Variables by which a caller of git (a hook, say) would send it to another repository.
const GIT_VARIABLES: [&str; 5] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY",
];

/// Files by their path from the root, with `/` between the parts.
#[derive(Default)]
pub(crate) struct Tree {
    /// Contents by path.
    files: BTreeMap<String, Vec<u8>>,
}

impl Tree {
    /// Everything that git tracks or would track, with the contents of the working tree.
    pub(crate) fn tracked(root: &Path) -> io::Result<Tree> {
        let mut git = git_in(root);
        git.args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]);
        let list = run::output(&mut git)?;
        let paths = list.split_terminator('\0').map(str::to_owned);
        Tree::read(root, paths)
    }

    /// Every file under a folder.
    pub(crate) fn under(root: &Path) -> io::Result<Tree> {
        let mut paths = Vec::new();
        walk(root, "", &mut paths)?;
        Tree::read(root, paths.into_iter())
    }

    /// The paths, sorted.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// All text files, with their paths.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.paths()
            .filter_map(|path| Some((path, self.text(path)?)))
    }

    /// The text files whose path ends like this.
    pub(crate) fn texts_ending<'a>(
        &'a self,
        end: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.texts().filter(move |(path, _)| path.ends_with(end))
    }

    /// A file's contents, if it exists and is text.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        std::str::from_utf8(self.files.get(path)?).ok()
    }

    /// Whether this is a file, or a folder with files in it.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.paths().any(|file| file.starts_with(&folder))
    }

    /// Makes a folder equal to this tree. What is equal already is left alone, so that builds stay incremental.
    pub(crate) fn write_to(&self, root: &Path) -> io::Result<()> {
        fs::create_dir_all(root)?;
        let there = Tree::under(root)?;
        for path in there.paths().filter(|path| !self.files.contains_key(*path)) {
            fs::remove_file(root.join(path))?;
        }
        for (path, contents) in &self.files {
            if there.files.get(path) != Some(contents) {
                io::Write::write_all(&mut run::create(&root.join(path))?, contents)?;
            }
        }
        Ok(())
    }

    /// Reads the files with these paths; one that is listed but gone is left out.
    fn read(root: &Path, paths: impl Iterator<Item = String>) -> io::Result<Tree> {
        let mut files = BTreeMap::new();
        for path in paths {
            match fs::read(root.join(&path)) {
                Ok(contents) => drop(files.insert(path, contents)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(io::Error::new(error.kind(), format!("{path}: {error}"))),
            }
        }
        Ok(Tree { files })
    }
}

/// A git that works in this folder, whatever the environment of the caller says.
pub(crate) fn git_in(folder: &Path) -> Command {
    let mut git = Command::new("git");
    for name in GIT_VARIABLES {
        git.env_remove(name);
    }
    git.current_dir(folder);
    git
}

/// Collects the paths of all files under `root/within`.
fn walk(root: &Path, within: &str, paths: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(within))? {
        let entry = entry?;
        let path = PathBuf::from(within).join(entry.file_name());
        let path = path.to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            walk(root, &path, paths)?
        } else {
            paths.push(path)
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A made-up tree.
    pub(crate) fn tree(files: &[(&str, &str)]) -> Tree {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), text.as_bytes().to_vec());
        Tree {
            files: files.iter().map(owned).collect(),
        }
    }

    /// A folder that is gone when the test is over.
    pub(crate) struct Scratch(pub(crate) PathBuf);

    impl Scratch {
        /// A new folder with a name of its own.
        pub(crate) fn new(name: &str) -> Scratch {
            let folder = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Scratch(folder.canonicalize().unwrap())
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_and_folders_exist_and_nothing_else() {
        let tree = tree(&[("docs/a.md", "")]);
        assert!(tree.exists("docs/a.md") && tree.exists("docs") && tree.exists(""));
        assert!(!tree.exists("doc") && !tree.exists("docs/a"));
    }

    /// A fault adds a file, removes one and changes one; the next fault must find none of that.
    #[test]
    fn writing_a_tree_restores_the_folder() {
        let scratch = Scratch::new("restore");
        let tree = tree(&[("a", "1"), ("folder/b", "2")]);
        tree.write_to(&scratch.0).unwrap();
        fs::write(scratch.0.join("a"), "changed").unwrap();
        fs::write(scratch.0.join("folder/new"), "new").unwrap();
        fs::remove_file(scratch.0.join("folder/b")).unwrap();
        tree.write_to(&scratch.0).unwrap();
        assert_eq!(Tree::under(&scratch.0).unwrap().files, tree.files);
    }

    #[test]
    fn what_is_equal_is_not_written_again() {
        let scratch = Scratch::new("untouched");
        let tree = tree(&[("a", "1")]);
        tree.write_to(&scratch.0).unwrap();
        let written = || {
            fs::metadata(scratch.0.join("a"))
                .unwrap()
                .modified()
                .unwrap()
        };
        let before = written();
        std::thread::sleep(std::time::Duration::from_millis(20));
        tree.write_to(&scratch.0).unwrap();
        assert_eq!(written(), before);
    }
}
