//! The examples `sources`, `ring`, `per_source`, `pinned`, `taxi_stand` and `mutual` do what they
//! say.

use std::{
    path::Path,
    process::{Command, Output},
};

use crate::support::{
    bounded,
    example::{build, run},
};

fn told(program: &Path, arguments: &[&str]) -> (String, Output) {
    let output = run(Command::new(program).args(arguments));
    (String::from_utf8(output.stdout.clone()).unwrap(), output)
}

/// Each order becomes a parcel, through two sources of one pool.
#[test]
fn sources_delivers_everything() {
    let program = build("sources");
    bounded(move || {
        let (text, output) = told(&program, &["--orders", "20001"]);
        assert!(output.status.success(), "{output:?}");
        assert!(text.contains("20001 orders, 20001 parcels"), "{text}");
        assert!(
            text.contains("all is delivered: everything was finished"),
            "{text}"
        );
        let (_, output) = told(&program, &["--colour"]);
        assert_eq!(output.status.code(), Some(2));
    });
}

/// Two processes: every record arrives, through a ring that is full all the time. And a child that
/// dies is noticed, after what it had sent.
#[test]
fn ring_between_two_processes() {
    let program = build("ring");
    bounded(move || {
        let (text, output) = told(&program, &["--records", "20000", "--capacity", "256"]);
        assert!(output.status.success(), "{output:?}");
        let sum = 20_000 * 19_999 / 2;
        assert!(
            text.starts_with(&format!("20000 records, sum {sum};")),
            "{text}"
        );
        let (text, output) = told(&program, &["--records", "20000", "--fail-after", "1000"]);
        assert!(output.status.success(), "{output:?}");
        assert!(text.starts_with("1000 records, sum 499500;"), "{text}");
    });
}

/// Three sources, five threads: all customers are served, and too few clerks are refused.
#[test]
fn per_source_serves_everyone() {
    let program = build("per_source");
    bounded(move || {
        let (text, output) = told(&program, &[]);
        assert!(output.status.success(), "{output:?}");
        assert!(
            text.contains("is refused: build a pool of sources: 1 sources with 1 threads"),
            "{text}"
        );
        assert!(text.contains("30 customers"), "{text}");
        assert!(text.contains("all in order: true"), "{text}");
    });
}

/// Each account is served by one clerk, its own, and the letters by two; nobody is lost.
#[test]
fn pinned_accounts_have_their_clerks() {
    let program = build("pinned");
    bounded(move || {
        let (text, output) = told(&program, &[]);
        assert!(output.status.success(), "{output:?}");
        for account in 0..8 {
            let mut counts = ["0"; 4];
            counts[account % 4] = "100";
            let line = format!("account {account}");
            assert_eq!(counts_of(&text, &line), counts, "{text}");
        }
        assert_eq!(counts_of(&text, "letters")[2..], ["0", "0"], "{text}");
        assert!(text.contains("everything was finished"), "{text}");
    });
}

fn counts_of<'t>(text: &'t str, what: &str) -> Vec<&'t str> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.trim_start().strip_prefix(what));
    line.unwrap().split_whitespace().collect()
}

/// Each cab that drives off comes back, the rides are counted, and nobody is left at the end.
#[test]
fn taxi_stand_brings_every_cab_back() {
    let program = build("taxi_stand");
    bounded(move || {
        let day = ["--plain", "--seconds", "1", "--rate", "5", "--cabs", "3"];
        let (text, output) = told(&program, &day);
        assert!(output.status.success(), "{output:?}");
        let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
        let rides = count(" drove off with ") + count(" is away with ");
        assert!(rides > 0, "{text}");
        assert_eq!(rides, count(" is back from "), "{text}");
        let cabs = text.lines().filter(|line| line.starts_with("  cab "));
        let of_cab = cabs.map(|line| line.split_whitespace().nth(2).unwrap());
        let of_cabs: usize = of_cab.map(|rides| rides.parse::<usize>().unwrap()).sum();
        assert_eq!(of_cabs, rides, "{text}");
        assert!(text.contains("shutdown: everything was finished"), "{text}");
    });
}

/// Two pools of one thread call each other, deeper than is usual, and end gracefully.
#[test]
fn mutual_calls_come_back() {
    let program = build("mutual");
    bounded(move || {
        let (text, output) = told(&program, &["--depth", "40"]);
        assert!(output.status.success(), "{output:?}");
        assert!(text.contains("40 calls inside each other"), "{text}");
        let ends = text.matches("everything was finished").count();
        assert_eq!(ends, 2, "{text}");
        let (_, output) = told(&program, &["--depth", "0"]);
        assert_eq!(output.status.code(), Some(2));
    });
}
