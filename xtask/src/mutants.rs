//! The mutants of a full run: `docs/mutants.md` lists those that survive the tests, with reasons.

use std::{collections::BTreeSet, fs, time::Duration};

use xtask_common::{
    run::{self, Ending},
    verb::Verdict,
    workspace::{Form, Workspace},
};

use crate::markdown;

/// What `cargo mutants` is asked for: the two protocols, without their models, which are not built here, and without
/// what only their own tests use.
const ARGUMENTS: [&str; 15] = [
    "--package",
    "paceline",
    "--file",
    "crates/paceline/src/promotion/**/*.rs",
    "--file",
    "crates/paceline/src/dispatch/**/*.rs",
    "--exclude",
    "**/models*",
    "--exclude",
    "**/models/**",
    "--exclude",
    "**/tests.rs",
    "--exclude-re",
    r"tests::|replace promoted ",
    "--output=target/mutants",
];

/// The file in which it lists the survivors, one per line.
const SURVIVORS: &str = "target/mutants/mutants.out/missed.txt";

/// The list of survivors that are accepted.
const DOCUMENT: &str = "docs/mutants.md";

/// A file, and a function in it.
type Place = (String, String);

/// A build and some tests for each of some fifteen hundred.
const LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs them all, and looks for each survivor in the document.
pub(crate) fn check() -> Verdict {
    if !run::answers("cargo", &["mutants", "--version"]) {
        let reason = "cargo-mutants is not installed (`cargo install cargo-mutants`)";
        return Verdict::skipped(reason);
    }
    let workspace = Workspace::this();
    let mut command = workspace.cargo(Form::Std);
    let finished = run::run_shown(command.arg("mutants").args(ARGUMENTS), LIMIT);
    // If any survives it fails. If none does, that is not why.
    let survivors = fs::read_to_string(workspace.root.join(SURVIVORS)).unwrap_or_default();
    match (&finished.ending, survivors.is_empty()) {
        (Ending::Failed(_), false) => {
            judge(&survivors, &run::read_log(&workspace.root.join(DOCUMENT)))
        }
        _ => finished.verdict(),
    }
}

/// Prints the survivors that are not listed, and counts.
fn judge(survivors: &str, document: &str) -> Verdict {
    let listed = listed(document);
    let is_new = |line: &&str| !listed.contains(&place(line));
    let new: Vec<_> = survivors.lines().filter(is_new).collect();
    new.iter().for_each(|line| println!("survived: {line}"));
    let (new, all) = (new.len(), survivors.lines().count());
    Verdict::from_failures(new, format!("{all} survived, {new} not in {DOCUMENT}"))
}

/// The functions in the first column of the table, each with the file that the last row without a change has named.
fn listed(document: &str) -> BTreeSet<Place> {
    let (mut listed, mut file) = (BTreeSet::new(), String::new());
    for row in document.lines().filter(|line| line.starts_with('|')) {
        let names = row.split('|').nth(1).map(markdown::code_spans);
        for (_, name) in names.into_iter().flatten() {
            if name.ends_with(".rs") {
                file = name
            } else {
                listed.insert((file.clone(), name));
            }
        }
    }
    listed
}

/// What is in no function.
const CONSTANT: &str = "const";

/// Where a survivor is. `FILE:LINE:COLUMN: CHANGE in FUNCTION`, or of a whole function `... replace FUNCTION -> TYPE with
/// VALUE`. The line of a constant does not name it.
fn place(survivor: &str) -> Place {
    let (place, change) = survivor.split_once(": ").unwrap_or((survivor, ""));
    let file = place.split(':').next().unwrap_or_default();
    let function = match change.rsplit_once(" in ") {
        Some((_, function)) => function,
        None => {
            let whole = change.strip_prefix("replace ").unwrap_or(change);
            let ends = [" -> ", " with "].map(|mark| whole.find(mark).unwrap_or(whole.len()));
            &whole[..ends[0].min(ends[1])]
        }
    };
    let name = if function.contains(char::is_alphanumeric) {
        plain(function)
    } else {
        CONSTANT.to_owned()
    };
    (file.to_owned(), name)
}

/// `<impl Trait for Type<T>>::function` and `Type<T>::function` as `Type::function`.
fn plain(function: &str) -> String {
    let of_type = function.rsplit_once(" for ").map_or(function, |(_, it)| it);
    let mut depth = 0_usize;
    let mut is_plain = |letter: &char| {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    };
    of_type.chars().filter(|it| is_plain(it)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtask_common::verb::Outcome;

    const DOCUMENT: &str = "\
| where | change | why it survives |
| --- | --- | --- |
| `src/a.rs` | | |
| `Lead::arrive`, `Seat::fmt` | `|` to `^` | equivalent |
| `src/b.rs` | | |
| `stay_awake` | `()` | likewise |
| `const` | `MASK`: `|` to `^` | equivalent |
";

    /// Each form of a survivor's line.
    #[test]
    fn who_is_listed_may_survive() {
        let survivors = "\
src/a.rs:219:17: delete match arm Attempt::TimedOut in Lead<T>::arrive
src/a.rs:62:9: replace <impl fmt::Debug for Seat<'_, T>>::fmt -> fmt::Result with Ok(Default::default())
src/b.rs:272:5: replace stay_awake with ()
src/b.rs:12:5: replace | with ^
";
        let verdict = judge(survivors, DOCUMENT);
        assert_eq!(verdict.summary, "4 survived, 0 not in docs/mutants.md");
        assert_eq!(verdict.outcome, Outcome::Passed);
    }

    /// A function of the same name elsewhere, another one of the same type, and what is in no function.
    #[test]
    fn who_is_not_listed_may_not() {
        let survivors = "\
src/b.rs:219:17: replace < with > in Lead<T>::arrive
src/a.rs:301:9: replace Lead<T>::help -> Promotion with Default::default()
src/a.rs:12:22: replace << with >>
";
        let verdict = judge(survivors, DOCUMENT);
        assert_eq!(verdict.summary, "3 survived, 3 not in docs/mutants.md");
        assert_eq!(verdict.outcome, Outcome::Failed);
    }
}
