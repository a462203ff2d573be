//! What a planted fault says about itself: the header of its patch, and the files that it touches.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::tree::Tree;

use super::checker::Checker;

/// The keys that a header may have; the first three it must have.
const KEYS: [&str; 4] = ["story", "promise", "caught-by", "seconds"];

/// The limit of a checker's run, if the header says nothing.
const DEFAULT_SECONDS: u64 = 60;

/// What faults may touch: the code that ships. A fault in a test would show nothing.
const SHIPPED: &str = "crates/paceline/src/";

/// A planted fault.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The name of the patch, without folder and ending.
    pub(crate) name: String,
    /// What is broken, in one sentence.
    pub(crate) story: String,
    /// The promise, or promises, that it breaks.
    pub(crate) promise: String,
    /// What must find it.
    pub(crate) checker: Checker,
    /// After this time a run of the checker counts as hung.
    pub(crate) limit: Duration,
    /// The files that the patch changes.
    pub(crate) touched: Vec<String>,
    /// The patch.
    pub(crate) text: String,
}

/// A patch that cannot be understood.
#[derive(Debug)]
pub(crate) struct PatchError {
    /// The patch, from the root.
    pub(crate) path: String,
    /// What is wrong with it.
    pub(crate) message: String,
}

/// All faults of a tree, in the order of their names.
pub(crate) fn all(tree: &Tree) -> Vec<Result<Fault, PatchError>> {
    let patches = tree.texts_ending(".patch");
    let named =
        patches.filter_map(|(path, text)| Some((path, path.strip_prefix("faults/")?, text)));
    let parsed = named.map(|(path, name, text)| {
        let fault = Fault::parse(name.trim_end_matches(".patch"), text);
        fault.map_err(|message| PatchError {
            path: path.to_owned(),
            message,
        })
    });
    parsed.collect()
}

impl Fault {
    /// Reads a patch.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Fault, String> {
        let mut header = header(text)?;
        let mut required = |key: &str| {
            header
                .remove(key)
                .ok_or(format!("its header has no `# {key}:`"))
        };
        let story = required("story")?;
        let promise = promises(required("promise")?)?;
        let checker = Checker::parse(&required("caught-by")?)?;
        let limit = seconds(header.get("seconds"))?;
        let touched = touched(text, &checker)?;
        let (name, text) = (name.to_owned(), text.to_owned());
        Ok(Fault {
            name,
            story,
            promise,
            checker,
            limit,
            touched,
            text,
        })
    }
}

/// The lines `# key: value` at the beginning.
fn header(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut header = BTreeMap::new();
    for line in text.lines().map_while(|line| line.strip_prefix('#')) {
        let (key, value) = line
            .split_once(':')
            .ok_or(format!("`#{line}` is not of the form `# key: value`"))?;
        let (key, value) = (key.trim(), value.trim());
        if !KEYS.contains(&key) || value.is_empty() {
            return Err(format!(
                "`#{line}`: the keys are {}, each with a value",
                KEYS.join(", ")
            ));
        }
        if header.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(format!("`# {key}:` stands there twice"));
        }
    }
    Ok(header)
}

/// Checks that every promise has the form of a name: a capital, a digit, perhaps a letter.
fn promises(text: String) -> Result<String, String> {
    let is_name = |name: &str| match name.as_bytes() {
        [letter, digit] => letter.is_ascii_uppercase() && digit.is_ascii_digit(),
        [letter, digit, part] => {
            letter.is_ascii_uppercase() && digit.is_ascii_digit() && part.is_ascii_lowercase()
        }
        _ => false,
    };
    match text.split(',').map(str::trim).all(is_name) {
        true => Ok(text),
        false => Err(format!(
            "`{text}` is not a promise such as `L1`, nor several with commas between"
        )),
    }
}

/// The limit.
fn seconds(value: Option<&String>) -> Result<Duration, String> {
    let seconds = match value {
        Some(value) => value
            .parse()
            .map_err(|_| format!("`{value}` is not a number of seconds"))?,
        None => DEFAULT_SECONDS,
    };
    Ok(Duration::from_secs(seconds))
}

/// The files that the lines `diff --git` name. They must ship, unless `tidy` is to find the fault.
fn touched(text: &str, checker: &Checker) -> Result<Vec<String>, String> {
    let diffs = text
        .lines()
        .filter_map(|line| line.strip_prefix("diff --git a/"));
    let paths: Vec<_> = diffs
        .filter_map(|line| Some(line.split_once(" b/")?.1.to_owned()))
        .collect();
    let foreign = |path: &&String| !path.starts_with(SHIPPED) && *checker != Checker::Tidy;
    match paths.iter().find(foreign) {
        Some(path) => Err(format!(
            "it touches `{path}`: a fault belongs into {SHIPPED}"
        )),
        None if paths.is_empty() => Err("it has no line `diff --git a/... b/...`".to_owned()),
        None => Ok(paths),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A complete header.
    const HEADER: &str = "# story: The lead is kept: nobody is promoted.\n# promise: L3a, H2\n# caught-by: test roles::one\n";

    /// The line that names the file.
    const DIFF: &str = "diff --git a/crates/paceline/src/a.rs b/crates/paceline/src/a.rs\n";

    /// Why a patch is refused.
    fn refusal(text: &str) -> String {
        Fault::parse("x", text).unwrap_err()
    }

    #[test]
    fn a_whole_header_is_read() {
        let text = format!("{HEADER}# seconds: 7\n{DIFF}--- a/x\n+++ b/x\n@@ -1 +1 @@\n-# caught-by: not this\n+y\n");
        let fault = Fault::parse("x", &text).unwrap();
        assert_eq!(fault.story, "The lead is kept: nobody is promoted.");
        assert_eq!(fault.promise, "L3a, H2");
        assert_eq!(fault.checker.to_string(), "test roles::one");
        assert_eq!(fault.limit, Duration::from_secs(7));
        assert_eq!(fault.touched, ["crates/paceline/src/a.rs"]);
    }

    #[test]
    fn the_limit_is_a_minute_if_nothing_is_said() {
        let fault = Fault::parse("x", &format!("{HEADER}{DIFF}")).unwrap();
        assert_eq!(fault.limit, Duration::from_secs(60));
    }

    #[test]
    fn a_missing_or_unknown_key_is_told() {
        assert!(refusal(DIFF).contains("story"));
        assert!(refusal(&format!("# story: x\n{DIFF}")).contains("promise"));
        assert!(refusal(&format!("{HEADER}# speed: 1\n{DIFF}")).contains("speed"));
        assert!(refusal(&format!("{HEADER}# story: y\n{DIFF}")).contains("twice"));
        assert!(refusal(&format!("# just a remark\n{DIFF}")).contains("form"));
        assert!(refusal(&format!("{HEADER}# seconds: soon\n{DIFF}")).contains("soon"));
    }

    #[test]
    fn a_patch_that_changes_nothing_that_ships_is_told() {
        assert!(refusal(HEADER).contains("diff --git"));
        let test = "diff --git a/crates/paceline/tests/a.rs b/crates/paceline/tests/a.rs\n";
        assert!(refusal(&format!("{HEADER}{test}")).contains("tests/a.rs"));
        let tidy = HEADER.replace("test roles::one", "tidy");
        assert!(Fault::parse("x", &format!("{tidy}diff --git a/README.md b/README.md\n")).is_ok());
    }

    #[test]
    fn a_promise_has_a_name() {
        assert!(
            refusal(&format!("{}{DIFF}", HEADER.replace("L3a, H2", "no herd"))).contains("promise")
        );
    }
}
