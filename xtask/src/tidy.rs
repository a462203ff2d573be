//! `tidy`: small checks over the whole tree. Documents agree with the code, nothing is left over, and what
//! the layout promises to be absent is absent.

use std::fmt;

use crate::measure;
use crate::tree::Tree;
use xtask_common::verb::{Verb, Verdict};
use xtask_common::workspace::Workspace;

mod absence;
mod counts;
mod language;
mod leftovers;
mod links;
mod names;
mod phrasing;
mod picture;
mod planted;
mod rooms;
mod shape;
mod unsafe_code;

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "tidy",
    summary: "check documents, names, leftovers and layout over the whole tree",
    help: "\
usage: cargo xtask tidy [--measure]

  --measure   print the figures of every crate's sources as a table, and check nothing

Reads every file that git tracks or would track and prints each offence as `path:line: message`:
  links       relative links and #anchors in Markdown exist
  paths       file paths in backticks in README.md, ARCHITECTURE.md and docs exist
  test names  `tests/FILE.rs::NAME` in docs/pattern.md and docs/protocol.md is a function there; the path
              is relative to crates/paceline, or from the root: `crates/paceline-server/tests/FILE.rs::NAME`
  counts      the first lines of docs/pattern.md count its rows
  leftovers   no unfinished code, no ignored test
  machines    no absolute path of one machine
  unsafe      only in the files that are listed for it; all crates but the core forbid it
  absence     promotion knows no descriptor, handle sets no thread, dispatch no pool, the core no layer
              above it; codecs, times, TLS layer and paceline-pg-wire do no I/O and read no clock
  rooms       the rooms of the core form a directed acyclic graph, which is printed
  picture     the functions that ARCHITECTURE.md's pictures name exist
  headers     every file of the libraries says what it is
  length      no Rust file over 600 lines
  columns     no line of the core's sources over 100 columns
  language    the core's comments name the actor (not: who, somebody, nobody, told, tells)
  endings     no white space at the end of a line, one newline at the end of a file
  faults      every planted fault is complete, and its text is in the code exactly once
  words       no words that do not belong here
  phrasing    plain English in documents and comments: none of the words listed in tidy/phrasing.rs,
              but for the files that are listed there as not clean yet",
    run: |mut args| {
        let measure = args.flag("--measure");
        args.nothing()?;
        Ok(if measure { figures() } else { check() })
    },
};

/// One check.
struct Check {
    /// Its name, as the help explains it.
    name: &'static str,
    /// Finds what is wrong.
    find: fn(&Tree) -> Vec<Offence>,
}

/// All checks.
const CHECKS: &[Check] = &[
    Check {
        name: "links",
        find: links::find,
    },
    Check {
        name: "paths",
        find: names::find_paths,
    },
    Check {
        name: "test names",
        find: names::find_tests,
    },
    Check {
        name: "counts",
        find: counts::find,
    },
    Check {
        name: "leftovers",
        find: leftovers::find_unfinished,
    },
    Check {
        name: "machines",
        find: leftovers::find_machine_paths,
    },
    Check {
        name: "unsafe",
        find: unsafe_code::find,
    },
    Check {
        name: "absence",
        find: absence::find,
    },
    Check {
        name: "rooms",
        find: rooms::find,
    },
    Check {
        name: "picture",
        find: picture::find,
    },
    Check {
        name: "headers",
        find: shape::find_missing_headers,
    },
    Check {
        name: "length",
        find: shape::find_long_files,
    },
    Check {
        name: "columns",
        find: shape::find_long_lines,
    },
    Check {
        name: "language",
        find: language::find,
    },
    Check {
        name: "endings",
        find: shape::find_bad_endings,
    },
    Check {
        name: "faults",
        find: planted::find,
    },
    Check {
        name: "words",
        find: leftovers::find_foreign_words,
    },
    Check {
        name: "phrasing",
        find: phrasing::find,
    },
];

/// Something that is wrong, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Offence {
    /// The file, from the root.
    path: String,
    /// The line, counted from one.
    line: usize,
    /// What is wrong.
    message: String,
}

impl Offence {
    /// An offence in a line.
    fn new(path: &str, line: usize, message: impl Into<String>) -> Offence {
        let (path, message) = (path.to_owned(), message.into());
        Offence {
            path,
            line,
            message,
        }
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Runs all checks over this tree.
pub(crate) fn check() -> Verdict {
    over_this_tree(report)
}

/// Prints the figures of this tree.
fn figures() -> Verdict {
    over_this_tree(|tree| {
        measure::print(tree);
        Verdict::passed("measured, nothing checked")
    })
}

/// What `judge` says of this tree.
fn over_this_tree(judge: fn(&Tree) -> Verdict) -> Verdict {
    match Tree::tracked(&Workspace::this().root) {
        Ok(tree) => judge(&tree),
        Err(error) => Verdict::failed(format!("the tree cannot be read: {error}")),
    }
}

/// Everything that is wrong in a tree, with the name of the check that found it.
pub(crate) fn offences(tree: &Tree) -> Vec<(&'static str, Offence)> {
    let by = |check: &Check| {
        let name = check.name;
        (check.find)(tree)
            .into_iter()
            .map(move |offence| (name, offence))
    };
    CHECKS.iter().flat_map(by).collect()
}

/// Prints every offence and counts.
fn report(tree: &Tree) -> Verdict {
    let offences = offences(tree);
    for (check, offence) in &offences {
        println!("{offence} [{check}]");
    }
    println!("the rooms of the core, from the bottom, and what each uses:");
    for line in rooms::picture(tree) {
        println!("  {line}");
    }
    let summary = format!(
        "{} files, {} checks, {} offences",
        tree.paths().count(),
        CHECKS.len(),
        offences.len()
    );
    Verdict::from_failures(offences.len(), summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn a_tidy_tree_has_no_offences() {
        let tree = tree(&[
            (
                "README.md",
                "# Paceline\n\nSee [the map](ARCHITECTURE.md#map) and `src/lib.rs`.\n",
            ),
            ("ARCHITECTURE.md", "# Map\n"),
            // This folder is on the list of `phrasing`, so a clean one would be an offence.
            ("crates/paceline/src/lib.rs", "//! It goes first.\n"),
        ]);
        assert!(offences(&tree).is_empty());
    }

    #[test]
    fn an_offence_tells_where_and_what() {
        let tree = tree(&[("README.md", "# Paceline\n\n[gone](gone.md)\n")]);
        let (check, offence) = &offences(&tree)[0];
        assert_eq!(*check, "links");
        assert!(offence.to_string().starts_with("README.md:3: "));
    }

    #[test]
    fn the_help_explains_every_check() {
        for check in CHECKS {
            assert!(
                VERB.help.contains(&format!("\n  {}", check.name)),
                "{} is not explained",
                check.name
            );
        }
    }
}
