//! `tidy --measure`: the figures of the sources, crate by crate, as a Markdown table. They are printed and
//! not judged: `tidy` judges what is fit for a rule.

use std::collections::BTreeMap;

use crate::tree::Tree;

use figures::Figures;
use source::Source;

mod figures;
mod source;

/// The document whose size is a figure of its own.
const BENCHMARKS: &str = "BENCHMARKS.md";

/// What no program here can count.
const BY_HAND: &str = "\
Counted by hand: the functions, files and hops of one request, from wait to wait. Follow the calls of the \
example `echo` in a debugger, one line of the walk for each function that is entered, and count the changes \
of file (hops), and those among them that lead to a file already left (returns).";

/// Prints the table and the notes below it.
pub(crate) fn print(tree: &Tree) {
    println!("{}", Figures::HEADING);
    for (package, sources) in by_package(tree) {
        println!("{}", Figures::of(&sources).row(&package));
    }
    let size = tree.text(BENCHMARKS).map_or(0, str::len);
    println!(
        "\n{BENCHMARKS}: {:.1} KB.\n\n{BY_HAND}",
        size as f64 / 1000.0
    );
}

/// The sources of each package: the Rust files below its `src`.
fn by_package(tree: &Tree) -> BTreeMap<String, Vec<Source>> {
    let mut packages: BTreeMap<String, Vec<Source>> = BTreeMap::new();
    for (path, text) in tree.texts_ending(".rs") {
        let Some((folder, _)) = path.split_once("/src/") else {
            continue;
        };
        let package = folder.strip_prefix("crates/").unwrap_or(folder);
        let sources = packages.entry(package.to_owned()).or_default();
        sources.push(Source::read(path, text));
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn a_package_is_what_has_a_folder_src() {
        let tree = tree(&[
            ("crates/a/src/lib.rs", ""),
            ("crates/a/src/b/c.rs", ""),
            ("crates/a/tests/d.rs", ""),
            ("xtask/inject/src/main.rs", ""),
            ("build.rs", ""),
        ]);
        let counts: Vec<_> = by_package(&tree)
            .into_iter()
            .map(|(package, sources)| (package, sources.len()))
            .collect();
        assert_eq!(
            counts,
            [("a".to_owned(), 2), ("xtask/inject".to_owned(), 1)]
        );
    }
}
