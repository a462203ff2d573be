//! Every planted fault has what it needs, and its text is in the code exactly once.

use crate::faults::{edit, fault};
use crate::tree::Tree;

use super::Offence;

/// Finds entries that `faults` does not understand, or cannot plant.
pub(super) fn find(tree: &Tree) -> Vec<Offence> {
    let offence = |fault: Result<fault::Fault, fault::TableError>| match fault {
        Err(error) => Some(Offence::new(&error.path, error.line, error.message)),
        Ok(fault) => {
            let why = edit::planted(tree, &fault.edits).err()?;
            Some(Offence::new("faults", 1, format!("{}: {why}", fault.name)))
        }
    };
    fault::all(tree).into_iter().filter_map(offence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    /// A table with one fault, which is sought as `find`.
    fn table(find: &str) -> String {
        format!(
            "under = 'crates/x/src'\n\n[a]\nstory = 'x'\npromise = 'L1'\ncaught-by = 'tidy'\nfind = '{find}'\nput = ''\n"
        )
    }

    #[test]
    fn a_fault_whose_text_is_gone_is_an_offence() {
        let found = |find| {
            let table = table(find);
            find_in(&[("faults/x.toml", &table), ("crates/x/src/a.rs", "one\n")])
        };
        assert_eq!(found("one").len(), 0);
        assert!(found("two")[0].message.contains("not there"));
    }

    #[test]
    fn a_table_that_is_none_is_an_offence() {
        let found = find_in(&[("faults/x.toml", "under\n"), ("faults/README.md", "")]);
        assert_eq!(found.len(), 1);
    }

    /// The offences of a made-up tree.
    fn find_in(files: &[(&str, &str)]) -> Vec<Offence> {
        find(&tree(files))
    }
}
