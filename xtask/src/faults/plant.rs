//! The copy of the tree: restored before each fault, and changed by its edits alone.

use std::{fs, io};

use crate::tree::Tree;
use xtask_common::run;
use xtask_common::workspace::Workspace;

use super::checker::Lane;
use super::edit;
use super::fault::Fault;

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

    /// Makes a fault's edits in the restored copy.
    pub(super) fn plant(&self, fault: &Fault) -> Result<(), String> {
        for (path, text) in edit::planted(self.tree, &fault.edits)? {
            if self.tree.text(&path) == Some(text.as_str()) {
                return Err(format!("its edits leave `{path}` as it is"));
            }
            fs::write(self.copy.root.join(&path), text)
                .map_err(|error| format!("`{path}` cannot be written: {error}"))?;
        }
        Ok(())
    }

    /// Shows the end of a log.
    pub(super) fn print_log(&self, label: &str) {
        run::print_tail(&self.copy.log(label), 40);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::{tree, Scratch};
    use toml::Value;

    /// A fault that turns `one` into `put`.
    fn fault(put: &str) -> Fault {
        let entry = format!(
            "story = 'x'\npromise = 'L1'\ncaught-by = 'tidy'\nfind = 'one'\nput = '{put}'\n"
        );
        let entry = Value::Table(entry.parse().unwrap());
        Fault::read("x", entry, "crates/x/src").unwrap()
    }

    #[test]
    fn a_fault_changes_the_copy_until_it_is_restored() {
        let scratch = Scratch::new("plant");
        let tree = tree(&[("crates/x/src/a.rs", "one\n")]);
        let mut copy = Workspace::this().faulty_copy("tests");
        copy.root = scratch.0.join("copy");
        let bench = Bench { copy, tree: &tree };
        let read = || fs::read_to_string(bench.copy.root.join("crates/x/src/a.rs")).unwrap();
        bench.restore().unwrap();
        assert!(bench.plant(&fault("one")).unwrap_err().contains("as it is"));
        bench.plant(&fault("two")).unwrap();
        assert_eq!(read(), "two\n");
        bench.restore().unwrap();
        assert_eq!(read(), "one\n");
    }
}
