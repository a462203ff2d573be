//! The copy of the tree: restored before each fault, and changed by its patch alone.

use std::path::Path;
use std::{fs, io};

use crate::run;
use crate::tree::{git_in, Tree};
use crate::workspace::Workspace;

use super::checker::Lane;
use super::patch::Fault;

/// The unharmed tree, and the copy that faults are planted in.
pub(super) struct Bench<'a> {
    /// Where the copy is and where it is built.
    pub(super) copy: Workspace,
    /// What the copy is restored to.
    tree: &'a Tree,
}

impl<'a> Bench<'a> {
    /// A bench for this tree; nothing is written yet.
    pub(super) fn new(tree: &'a Tree, lane: Lane) -> Bench<'a> {
        let copy = Workspace::this().faulty_copy(lane.name());
        Bench { copy, tree }
    }

    /// Makes the copy equal to the tree.
    pub(super) fn restore(&self) -> io::Result<()> {
        self.tree.write_to(&self.copy.root)
    }

    /// Applies a fault's patch to the restored copy, and makes sure that it changed what it says.
    pub(super) fn plant(&self, fault: &Fault) -> Result<(), String> {
        let patch = self.copy.log(&fault.name).with_extension("patch");
        apply(&self.copy.root, &patch, &fault.text)?;
        match fault.touched.iter().find(|path| self.is_unchanged(path)) {
            Some(path) => Err(format!("does not apply: `{path}` is as it was")),
            None => Ok(()),
        }
    }

    /// Shows the end of a log.
    pub(super) fn print_log(&self, label: &str) {
        run::print_tail(&self.copy.log(label), 40);
    }

    /// Whether a file of the copy is still as in the tree.
    fn is_unchanged(&self, path: &str) -> bool {
        let now = fs::read(self.copy.root.join(path)).ok();
        now.as_deref() == self.tree.bytes(path)
    }
}

/// Applies a patch to the folder `root`. The folder lies inside a repository, for which git would take every
/// path as its own and skip what is not under `root` without a word; so git is told not to look further up.
fn apply(root: &Path, patch: &Path, text: &str) -> Result<(), String> {
    let failed =
        |error: io::Error| format!("does not apply: {}", error.to_string().replace('\n', "; "));
    let mut file = run::create(patch).map_err(failed)?;
    io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)?;
    let above = root.parent().unwrap_or(root);
    let mut git = git_in(root);
    git.env("GIT_CEILING_DIRECTORIES", above)
        .args(["apply", "--whitespace=nowarn"])
        .arg(patch);
    run::output(&mut git).map(drop).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::{tree, Scratch};

    /// A patch that turns `one` into `two`.
    const PATCH: &str = "# story: x\ndiff --git a/folder/a b/folder/a\n--- a/folder/a\n+++ b/folder/a\n@@ -1 +1 @@\n-one\n+two\n";

    /// A repository in which the same path exists twice: in itself and in the copy inside it.
    fn repository_with_copy(name: &str) -> Scratch {
        let scratch = Scratch::new(name);
        run::output(git_in(&scratch.0).args(["init", "--quiet"])).unwrap();
        let tree = tree(&[("folder/a", "one\n")]);
        tree.write_to(&scratch.0).unwrap();
        tree.write_to(&scratch.0.join("target/copy")).unwrap();
        scratch
    }

    /// Inside a repository, git takes the paths of a patch for the repository's own: the patch would be skipped
    /// in silence, or hit the real tree.
    #[test]
    fn a_patch_reaches_the_copy_and_not_the_repository_around_it() {
        let scratch = repository_with_copy("apply");
        let patch = scratch.0.join("target/x.patch");
        apply(&scratch.0.join("target/copy"), &patch, PATCH).unwrap();
        let read = |path| fs::read_to_string(scratch.0.join(path)).unwrap();
        assert_eq!(read("target/copy/folder/a"), "two\n");
        assert_eq!(read("folder/a"), "one\n");
    }

    /// A patch that git accepts may still leave the code as it was.
    #[test]
    fn a_patch_that_changes_no_contents_is_an_error() {
        let scratch = repository_with_copy("unchanged");
        let tree = tree(&[("folder/a", "one\n")]);
        let mut copy = Workspace::this().faulty_copy("tests");
        copy.root = scratch.0.join("target/copy");
        copy.logs = scratch.0.join("target/logs");
        let bench = Bench { copy, tree: &tree };
        let header = "# story: x\n# promise: L1\n# caught-by: tidy\n";
        let mode = "diff --git a/folder/a b/folder/a\nold mode 100644\nnew mode 100755\n";
        let plant = |text: &str| bench.plant(&Fault::parse("x", text).unwrap());
        assert!(plant(&format!("{header}{mode}"))
            .unwrap_err()
            .contains("as it was"));
        bench.restore().unwrap();
        assert_eq!(plant(&PATCH.replace("# story: x\n", header)), Ok(()));
    }

    #[test]
    fn a_patch_that_does_not_fit_is_an_error() {
        let scratch = repository_with_copy("unfit");
        let patch = scratch.0.join("target/x.patch");
        let unfit = PATCH.replace("-one", "-other");
        let error = apply(&scratch.0.join("target/copy"), &patch, &unfit).unwrap_err();
        assert!(error.starts_with("does not apply"), "{error}");
    }
}
