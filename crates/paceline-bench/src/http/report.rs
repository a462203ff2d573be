//! The tables: for each work all servers, ratios to ours of paired rounds, and the goals.

use std::{collections::BTreeMap, fmt::Write as _, io};

use super::{servers::OURS, works::Work, Found, Rounds};
use crate::statistics::{Interval, Ratios, Spread};

/// What is wanted of ours.
struct Goal {
    work: &'static str,
    peer: &'static str,
    what: &'static str,
    value: fn(&Found) -> Option<f64>,
    most: f64,
}

const GOALS: &[Goal] = &[
    cpu("hello", "hyper", 0.92),
    cpu("hello", "axum", 0.90),
    cpu("hello", "go", 0.58),
    cpu("hello", "tiny_http", 0.3),
    cpu("tls", "axum", 0.95),
    Goal {
        work: "pipelined",
        peer: "hyper",
        what: "seconds per answer",
        value: |found| per_answer(found, found.seconds),
        most: 1.0 / 1.5,
    },
    p99("sleepy", "hyper", 0.3),
    p99("sleepy", "hyper-blocking", 0.9),
];

/// Quick clients beside slow ones, compared with the same alone.
const BESIDE: (&str, &str, f64) = ("beside-slow", "hello", 1.1);
/// The most memory of an idle connection, in bytes.
const IDLE: f64 = 1024.0;

const fn cpu(work: &'static str, peer: &'static str, most: f64) -> Goal {
    Goal {
        work,
        peer,
        what: "CPU",
        value: |found| per_answer(found, found.server_cpu),
        most,
    }
}

const fn p99(work: &'static str, peer: &'static str, most: f64) -> Goal {
    Goal {
        work,
        peer,
        what: "p99",
        value: |found| (found.answers > 0).then_some(found.p99),
        most,
    }
}

fn per_answer(found: &Found, seconds: f64) -> Option<f64> {
    (found.answers > 0).then(|| seconds / found.answers as f64)
}

/// Prints everything.
///
/// # Errors
/// Nothing was measured.
pub(super) fn print(works: &[&Work], all: &BTreeMap<&str, Rounds>) -> io::Result<()> {
    let is_any = |rounds: &Rounds| rounds.values().flatten().any(Option::is_some);
    if !all.values().any(is_any) {
        return Err(io::Error::other("nothing could be measured"));
    }
    for work in works {
        if let Some(rounds) = all.get(work.name) {
            println!("{}", table(work, rounds));
        }
    }
    println!("{}", goals(all));
    Ok(())
}

fn table(work: &Work, rounds: &Rounds) -> String {
    let mut text = format!("## {}: {}\n\n", work.name, work.about);
    if work.is_idle {
        text.push_str("| server | bytes for each connection |\n| --- | ---: |\n");
    } else {
        text.push_str(
            "| server | answers/s | CPU us | p50 us | p99 us | ours / its CPU | ours / its p99 | errors |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        );
    }
    for (server, found) in rounds {
        let row = if work.is_idle {
            median(found, |found| Some(found.memory), 0)
        } else {
            row(server, found, rounds)
        };
        // A string takes everything.
        let _ = writeln!(text, "| {server} | {row} |");
    }
    text
}

fn row(server: &str, found: &[Option<Found>], rounds: &Rounds) -> String {
    let ours = rounds.get(OURS);
    let ratio = |value: fn(&Found) -> Option<f64>| match ours {
        Some(ours) if server != OURS => shown(&ratios(ours, found, value)),
        _ => "-".to_owned(),
    };
    let errors: u64 = found.iter().flatten().map(|found| found.errors).sum();
    [
        median(found, |found| Some(found.answers as f64 / found.seconds), 0),
        median(found, |found| per_answer(found, found.server_cpu * 1e6), 2),
        median(found, |found| Some(found.p50), 0),
        median(found, |found| Some(found.p99), 0),
        ratio(|found| per_answer(found, found.server_cpu)),
        ratio(|found| (found.answers > 0).then_some(found.p99)),
        errors.to_string(),
    ]
    .join(" | ")
}

fn median(found: &[Option<Found>], value: impl Fn(&Found) -> Option<f64>, digits: usize) -> String {
    let values = found.iter().flatten().filter_map(value);
    Spread::of(values).map_or("-".to_owned(), |spread| {
        format!("{:.digits$}", spread.median)
    })
}

/// Ours divided by theirs, round by round.
fn ratios(
    ours: &[Option<Found>],
    theirs: &[Option<Found>],
    value: fn(&Found) -> Option<f64>,
) -> Ratios {
    Ratios::of(ours.iter().zip(theirs).map(|(ours, theirs)| {
        let (ours, theirs) = (value(ours.as_ref()?)?, value(theirs.as_ref()?)?);
        (theirs > 0.0).then(|| ours / theirs)
    }))
}

fn shown(ratios: &Ratios) -> String {
    let Some(spread) = ratios.spread() else {
        return "-".to_owned();
    };
    match ratios.interval() {
        Some(Interval { low, high }) => {
            format!("{:.2} [{low:.2}-{high:.2}]", spread.median)
        }
        None => format!("{:.2}", spread.median),
    }
}

fn goals(all: &BTreeMap<&str, Rounds>) -> String {
    let mut text = String::from("## Goals\n\n| goal | found | |\n| --- | ---: | --- |\n");
    let mut add = |goal: String, found: Option<(f64, String)>, most: f64| {
        let (shown, verdict) = match found {
            None => ("-".to_owned(), "not measured"),
            Some((value, shown)) if value <= most => (shown, "met"),
            Some((_, shown)) => (shown, "missed"),
        };
        let _ = writeln!(text, "| {goal} | {shown} | {verdict} |");
    };
    let judged = |ratios: &Ratios| Some((ratios.spread()?.median, shown(ratios)));
    for goal in GOALS {
        let rounds = all.get(goal.work);
        let of = |server| rounds.and_then(|rounds| rounds.get(server));
        let found = of(OURS).zip(of(goal.peer));
        let found = found.and_then(|(ours, theirs)| judged(&ratios(ours, theirs, goal.value)));
        let words = format!(
            "{}: {} of ours / {} at most {:.2}",
            goal.work, goal.what, goal.peer, goal.most
        );
        add(words, found, goal.most);
    }
    let (beside, alone, most) = BESIDE;
    let of = |work| all.get(work).and_then(|rounds| rounds.get(OURS));
    let found = of(beside).zip(of(alone)).and_then(|(beside, alone)| {
        judged(&ratios(beside, alone, |found| {
            (found.answers > 0).then_some(found.p99)
        }))
    });
    add(
        format!("p99 of ours, {beside} / {alone} at most {most:.2}"),
        found,
        most,
    );
    let idle = of("idle").and_then(|found| {
        let values = found.iter().flatten().map(|found| found.memory);
        let median = Spread::of(values)?.median;
        Some((median, format!("{median:.0}")))
    });
    add(
        format!("idle: bytes for each connection at most {IDLE:.0}"),
        idle,
        IDLE,
    );
    text
}
