//! Every planted fault has its header.

use crate::faults::patch;
use crate::tree::Tree;

use super::Offence;

/// Finds patches without a header that `faults` understands.
pub(super) fn find(tree: &Tree) -> Vec<Offence> {
    let wrong = patch::all(tree).into_iter().filter_map(Result::err);
    wrong
        .map(|error| Offence::new(&error.path, 1, error.message))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn a_patch_without_a_header_is_told() {
        let found = find(&tree(&[
            ("faults/a.patch", "diff --git a/x b/x\n"),
            ("faults/README.md", ""),
        ]));
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("story"));
    }
}
