//! Reads the report that pytest writes: JUnit's XML, as far as it is needed.

/// One test, with one set of its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Case {
    /// `FILE::NAME`, without parameters.
    pub(super) test: String,
    /// The same, with them.
    pub(super) name: String,
    /// What became of it.
    pub(super) fate: Fate,
}

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It passed.
    Passed,
    /// It failed, or its set-up or its end did: the first line of the reason.
    Failed(String),
    /// It was skipped: why.
    Skipped(String),
}

/// All cases of a report. One that failed, and whose end failed too, is one case.
pub(super) fn read(xml: &str) -> Result<Vec<Case>, String> {
    if !xml.contains("</testsuites>") {
        return Err("the suite left no report: see the lines above".to_owned());
    }
    let mut cases: Vec<Case> = Vec::new();
    for piece in xml.split("<testcase ").skip(1) {
        let case = case(piece).ok_or("a testcase of the report has no name")?;
        match cases.iter_mut().find(|known| known.name == case.name) {
            Some(known) => known.fate = worse(known.fate.clone(), case.fate),
            None => cases.push(case),
        }
    }
    Ok(cases)
}

/// Reads the attributes and the elements behind `<testcase `.
fn case(piece: &str) -> Option<Case> {
    let class = attribute(piece, "classname")?;
    let name = attribute(piece, "name")?;
    let file = format!("{}.py", class.rsplit('.').next()?);
    let function = name.split('[').next()?;
    Some(Case {
        test: format!("{file}::{function}"),
        name: format!("{file}::{name}"),
        fate: fate(piece),
    })
}

fn fate(piece: &str) -> Fate {
    let body = piece.split("</testcase>").next().unwrap_or(piece);
    let message = |element: &str| {
        let (_, rest) = body.split_once(element)?;
        let message = attribute(rest, "message").unwrap_or_default();
        Some(message.lines().next().unwrap_or_default().to_owned())
    };
    let failed = message("<failure").or_else(|| message("<error"));
    let skipped = || message("<skipped").map(Fate::Skipped);
    failed
        .map(Fate::Failed)
        .or_else(skipped)
        .unwrap_or(Fate::Passed)
}

/// A failure beats everything, and a pass beats a skip.
fn worse(one: Fate, other: Fate) -> Fate {
    match (one, other) {
        (Fate::Failed(reason), _) | (_, Fate::Failed(reason)) => Fate::Failed(reason),
        (Fate::Passed, _) | (_, Fate::Passed) => Fate::Passed,
        (skipped, Fate::Skipped(_)) => skipped,
    }
}

/// The value of an attribute of the element that `text` is the rest of.
fn attribute(text: &str, name: &str) -> Option<String> {
    let mut rest = text;
    loop {
        let (key, behind) = rest.split_once("=\"")?;
        if key.contains('>') {
            return None;
        }
        let (value, next) = behind.split_once('"')?;
        if key.trim() == name {
            return Some(unescaped(value));
        }
        rest = next;
    }
}

fn unescaped(text: &str) -> String {
    let pairs = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&#10;", "\n"),
        ("&amp;", "&"),
    ];
    let start = text.to_owned();
    pairs
        .iter()
        .fold(start, |text, (escape, plain)| text.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shortened from a real report.
    const REPORT: &str = r#"<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests">
<testsuite name="pytest" errors="1" failures="1" skipped="1" tests="4" time="9.8">
<testcase classname="test.test_admin" name="test_show" time="0.231" />
<testcase classname="test.test_misc" name="test_scram_server[md5-a &amp; b]" time="1.0"><failure
 message="AssertionError: assert 1 == &lt;2&gt;&#10;second line">test/x.py:1 name="no"</failure><system-out>
&lt;testcase</system-out></testcase>
<testcase classname="test.test_ssl" name="test_a" time="0"><skipped type="pytest.skip" message="no TLS">x</skipped></testcase>
<testcase classname="test.test_ssl" name="test_b" time="0" />
<testcase classname="test.test_ssl" name="test_b" time="0"><error message="failed on teardown">x</error></testcase>
</testsuite></testsuites>"#;

    #[test]
    fn a_report_is_read() {
        let cases = read(REPORT).expect("a report");
        let found: Vec<_> = cases
            .iter()
            .map(|case| (&*case.name, case.fate.clone()))
            .collect();
        let expected = [
            ("test_admin.py::test_show", Fate::Passed),
            (
                "test_misc.py::test_scram_server[md5-a & b]",
                Fate::Failed("AssertionError: assert 1 == <2>".to_owned()),
            ),
            ("test_ssl.py::test_a", Fate::Skipped("no TLS".to_owned())),
            (
                "test_ssl.py::test_b",
                Fate::Failed("failed on teardown".to_owned()),
            ),
        ];
        assert_eq!(found, expected);
        assert_eq!(cases[1].test, "test_misc.py::test_scram_server");
        assert!(read("<testsuites>").is_err(), "half a report");
    }
}
