//! `unsafe` lives in the system-call seam and in the few primitives that need it.

use crate::rust_text::{code_only, contains_word};
use crate::tree::Tree;

use super::Offence;

/// The files that may hold it. Adding one is a decision: say in its header why nothing else will do.
const ALLOWED: [&str; 22] = [
    "crates/paceline/src/handle_set/epoll.rs",
    "crates/paceline/src/handle_set/poll.rs",
    "crates/paceline/src/handle_set/system.rs",
    "crates/paceline/src/handle_set/uring.rs",
    "crates/paceline/src/sync/futex.rs",
    "crates/paceline/src/sync/idle_class.rs",
    "crates/paceline/src/sync/neighbour.rs",
    "crates/paceline/src/sync/system.rs",
    "crates/paceline/src/promotion/lead.rs",
    "crates/paceline/src/promotion/held.rs",
    "crates/paceline/src/dispatch/slot.rs",
    "crates/paceline/src/sources/cells.rs",
    "crates/paceline/src/sources/ring/system.rs",
    "crates/paceline/src/sources/signals/system.rs",
    // A counting allocator.
    "crates/paceline/tests/alone/allocations.rs",
    // Others.
    "crates/paceline-bench/src/allocations.rs",
    "crates/paceline-server/tests/alone/allocations.rs",
    // And another one.
    "crates/paceline-server/tests/http_allocations.rs",
    "crates/paceline-pg/tests/allocations.rs",
    // Makes an eventfd, a timerfd and a terminal.
    "crates/paceline/tests/variants/sources.rs",
    // Numbers that are no open descriptors.
    "crates/paceline/tests/support/unowned.rs",
    // Stops single threads of a process by `ptrace`.
    "crates/paceline/tests/examples/stopped_thread.rs",
];

/// The roots of the crates that the compiler keeps free of it.
const FORBIDDING: [&str; 7] = [
    "crates/paceline-server/src/lib.rs",
    "crates/paceline-pg-wire/src/lib.rs",
    "crates/paceline-sqlite/src/lib.rs",
    "fuzz/src/lib.rs",
    "xtask/src/main.rs",
    "xtask/common/src/lib.rs",
    "xtask/inject/src/main.rs",
];

/// Finds `unsafe` in the code of any file that is not listed, and roots that have to forbid it and don't.
pub(super) fn find(tree: &Tree) -> Vec<Offence> {
    let mut offences = find_unlisted(tree);
    offences.extend(find_permitting(tree));
    offences
}

/// Finds roots of crates without `#![forbid(unsafe_code)]`.
fn find_permitting(tree: &Tree) -> Vec<Offence> {
    let roots = FORBIDDING
        .iter()
        .filter_map(|path| Some((path, tree.text(path)?)));
    let permitting = roots.filter(|(_, text)| !code_only(text).contains("#![forbid(unsafe_code)]"));
    permitting
        .map(|(path, _)| Offence::new(path, 1, "there is no `#![forbid(unsafe_code)]`"))
        .collect()
}

/// Finds `unsafe` in the code of any file that is not listed. Lint names such as `unsafe_code` are other words.
fn find_unlisted(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    let others = tree
        .texts_ending(".rs")
        .filter(|(path, _)| !ALLOWED.contains(path));
    for (path, text) in others {
        for (index, line) in code_only(text).lines().enumerate() {
            if contains_word(line, "unsafe") {
                offences.push(Offence::new(
                    path,
                    index + 1,
                    "`unsafe` in a file that is not listed for it",
                ));
            }
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn only_listed_files_may_hold_it() {
        let text = "#![deny(unsafe_op_in_unsafe_fn)]\n// unsafe\nunsafe { x() }\n";
        let found = find_unlisted(&tree(&[
            (ALLOWED[0], text),
            ("crates/paceline/src/lib.rs", text),
        ]));
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].path.as_str(), found[0].line),
            ("crates/paceline/src/lib.rs", 3)
        );
    }

    #[test]
    fn a_root_that_has_to_forbid_it_does() {
        let in_a_comment = "//! Server.\n// #![forbid(unsafe_code)]\n";
        let found = find(&tree(&[
            (FORBIDDING[0], in_a_comment),
            (FORBIDDING[1], "//! Verbs.\n#![forbid(unsafe_code)]\n"),
        ]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, FORBIDDING[0]);
    }
}
