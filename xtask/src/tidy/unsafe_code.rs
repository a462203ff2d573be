//! `unsafe` lives in the system-call seam and in the few primitives that need it.

use crate::rust_text::{code_only, contains_word};
use crate::tree::Tree;

use super::Offence;

/// The files that may hold it. Adding one is a decision: say in its header why nothing else will do.
const ALLOWED: [&str; 19] = [
    "crates/paceline/src/handle_set/epoll.rs",
    "crates/paceline/src/handle_set/poll.rs",
    "crates/paceline/src/handle_set/system.rs",
    "crates/paceline/src/handle_set/uring.rs",
    "crates/paceline/src/sync/bed_futex.rs",
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
    // Another one.
    "crates/paceline-bench/src/allocations.rs",
    // Makes an eventfd, a timerfd and a terminal.
    "crates/paceline/tests/variants/sources.rs",
    // Numbers that are no open descriptors.
    "crates/paceline/tests/support/unowned.rs",
    // Stops single threads of a process by `ptrace`.
    "crates/paceline/tests/examples/stopped_thread.rs",
];

/// Finds `unsafe` in the code of any other file. Lint names such as `unsafe_code` are other words.
pub(super) fn find(tree: &Tree) -> Vec<Offence> {
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
        let found = find(&tree(&[
            (ALLOWED[0], text),
            ("crates/paceline/src/lib.rs", text),
        ]));
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].path.as_str(), found[0].line),
            ("crates/paceline/src/lib.rs", 3)
        );
    }
}
