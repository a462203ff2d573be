//! Counters as OpenMetrics text: every number of a snapshot is there, and the text is what the standard asks for.

use std::collections::HashSet;

use paceline::{observe::open_metrics, Pool};

/// Every field of a snapshot has its family. (Its `Debug` form knows them all.)
#[test]
fn nothing_is_left_out() {
    let pool = Pool::builder().threads(0).build().unwrap();
    let text = open_metrics(&[("one", pool.snapshot())]);
    let debug = format!("{:#?}", pool.snapshot());
    let fields = debug.lines().filter_map(|line| {
        let field = line.strip_prefix("    ")?;
        field.split_once(": ").map(|(name, _)| name.to_owned())
    });
    let mut count = 0;
    for field in fields {
        let is_there = |suffix: &str| text.contains(&format!("# TYPE paceline_{field}{suffix} "));
        assert!(
            is_there("") || is_there("_seconds"),
            "{field} is missing:\n{text}"
        );
        count += 1;
    }
    assert!(count >= 20, "{debug}");
}

/// Each family is told once, with its type and its help before its samples, of which each pool has one; the end is marked.
#[test]
fn the_text_is_well_formed() {
    let pool = Pool::builder().threads(0).build().unwrap();
    let hostile = "a \"quoted\\\" name\nof two lines";
    let text = open_metrics(&[("one", pool.snapshot()), (hostile, pool.snapshot())]);
    assert!(text.ends_with("\n# EOF\n"));
    let (mut families, mut samples) = (HashSet::new(), HashSet::new());
    let mut current = String::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert!(families.insert(name.to_owned()), "{name} twice");
            current = name.to_owned();
            continue;
        }
        if line.starts_with("# ") {
            assert!(line.contains(&current), "{line}");
            continue;
        }
        assert!(line.starts_with(&current), "{line} in {current}");
        let (sample, value) = line.rsplit_once(' ').unwrap();
        assert!(sample.ends_with("\"}"), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(samples.insert(sample.to_owned()), "{sample} twice");
    }
    assert_eq!(samples.len(), 2 * families.len());
    assert!(text.contains(r#"{pool="a \"quoted\\\" name\nof two lines"} "#));
}
