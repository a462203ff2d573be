//! Counters and histograms as text that monitoring systems read (OpenMetrics 1.0).

use std::{fmt::Write, ops::RangeInclusive, time::Duration};

use super::{Histogram, Histograms, Snapshot};

/// What can be made text of: a pool, or a snapshot of one.
pub trait Metrics {
    /// The counters.
    fn snapshot(&self) -> Snapshot;

    /// How long things took, if that is known.
    fn histograms(&self) -> Option<Histograms> {
        None
    }
}

/// Only the counters.
impl Metrics for Snapshot {
    fn snapshot(&self) -> Snapshot {
        *self
    }
}

impl<M: Metrics + ?Sized> Metrics for &M {
    fn snapshot(&self) -> Snapshot {
        (**self).snapshot()
    }

    fn histograms(&self) -> Option<Histograms> {
        (**self).histograms()
    }
}

/// What a family of numbers is called, what it is, and how to find it in a snapshot.
struct Family {
    name: &'static str,
    help: &'static str,
    value: Value,
}

enum Value {
    /// It only grows.
    Counter(fn(&Snapshot) -> u64),
    /// It goes up and down.
    Gauge(fn(&Snapshot) -> u64),
    /// It only grows, in seconds.
    Seconds(fn(&Snapshot) -> f64),
    /// The largest so far, in seconds.
    Longest(fn(&Snapshot) -> f64),
}

use Value::{Counter, Gauge, Longest, Seconds};

/// All of them, in the order of the snapshot.
const FAMILIES: [Family; 34] = [
    family(
        "promotions",
        "Leads given away with an event",
        Counter(|it| it.promotions),
    ),
    family("wakes", "Followers woken", Counter(|it| it.wakes)),
    family(
        "wasted_wakes",
        "Followers woken for nothing",
        Counter(|it| it.wasted_wakes),
    ),
    family("ticks", "Polls of the standby", Counter(|it| it.ticks)),
    family(
        "rings",
        "Leads taken because the watcher rang",
        Counter(|it| it.rings),
    ),
    family(
        "spins",
        "Spins of a leader before it slept",
        Counter(|it| it.spins),
    ),
    family(
        "spins_in_vain",
        "Spins of a leader that found nothing",
        Counter(|it| it.spins_in_vain),
    ),
    family(
        "passed_on",
        "Events left to others by threads that wait for a reply",
        Counter(|it| it.passed_on),
    ),
    family(
        "handed",
        "Events handed to a thread that their handles belong to",
        Counter(|it| it.handed),
    ),
    family(
        "strayed",
        "Events of handles whose threads have all left",
        Counter(|it| it.strayed),
    ),
    family(
        "leads_taken_back",
        "Leads taken right after an event",
        Counter(|it| it.leads_taken_back),
    ),
    family(
        "without_leader_seconds",
        "Time in which no thread led",
        Seconds(|it| it.without_leader.as_secs_f64()),
    ),
    family(
        "longest_without_leader_seconds",
        "Longest time in which no thread led",
        Longest(|it| it.longest_without_leader.as_secs_f64()),
    ),
    family(
        "longest_blind_seconds",
        "Longest time in which no thread led although a follower slept",
        Longest(|it| it.longest_blind.as_secs_f64()),
    ),
    family(
        "stale_events",
        "Events for registrations that were over",
        Counter(|it| it.stale_events),
    ),
    family("panics", "Panics of user code", Counter(|it| it.panics)),
    family(
        "failed",
        "Handles closed because of an error",
        Counter(|it| it.failed),
    ),
    family(
        "unread_calls",
        "Calls that left input unread, of handlers that do so again and again",
        Counter(|it| it.unread_calls),
    ),
    family(
        "accepted",
        "Connections accepted",
        Counter(|it| it.accepted),
    ),
    family("refused", "Connections refused", Counter(|it| it.refused)),
    family(
        "aborted",
        "Connections gone before they were accepted",
        Counter(|it| it.aborted),
    ),
    family(
        "connections",
        "Accepted connections that are open",
        Gauge(|it| it.connections as u64),
    ),
    family("posted", "Posts accepted", Counter(|it| it.posted)),
    family(
        "timers",
        "Timers whose time had come",
        Counter(|it| it.timers),
    ),
    family(
        "late_timers",
        "Timers found more than a millisecond late",
        Counter(|it| it.late_timers),
    ),
    family(
        "missed_ticks",
        "Ticks without a call",
        Counter(|it| it.missed_ticks),
    ),
    family(
        "timed_out",
        "Handles closed because their time was over",
        Counter(|it| it.timed_out),
    ),
    family(
        "moved",
        "Handles that went on in another pool",
        Counter(|it| it.moved),
    ),
    family(
        "expired",
        "Events that had waited too long",
        Counter(|it| it.expired),
    ),
    family(
        "threads",
        "Threads in the pool",
        Gauge(|it| it.threads as u64),
    ),
    family("grown", "Threads called", Counter(|it| it.grown)),
    family(
        "retired",
        "Threads let go because they were idle",
        Counter(|it| it.retired),
    ),
    family(
        "roamed",
        "Roaming threads sent to a set without a leader",
        Counter(|it| it.roamed),
    ),
    family(
        "spawns_failed",
        "Threads that could not be spawned",
        Counter(|it| it.spawns_failed),
    ),
];

const fn family(name: &'static str, help: &'static str, value: Value) -> Family {
    Family { name, help, value }
}

/// A family of histograms: what it is called, what it is, and how to find it.
struct TimeFamily {
    name: &'static str,
    help: &'static str,
    of: fn(&Histograms) -> &Histogram,
}

/// All of them.
const TIMES: [TimeFamily; 3] = [
    TimeFamily {
        name: "turn_seconds",
        help: "From the claim of an event until its thread had rejoined",
        of: |it| &it.turn,
    },
    TimeFamily {
        name: "handler_seconds",
        help: "Handlers",
        of: |it| &it.handler,
    },
    TimeFamily {
        name: "blind_seconds",
        help: "Times in which no thread led although a follower slept",
        of: |it| &it.blind,
    },
];

/// The buckets in the text end one nanosecond before these powers of two, in nanoseconds: from a
/// microsecond to half a minute. They are the same in every text, as monitoring systems demand.
const POWERS: RangeInclusive<u32> = 10..=35;

/// The counters of some pools, each with its name, as OpenMetrics text: what a monitoring system
/// reads from a page of yours, of type `application/openmetrics-text; version=1.0.0`. It ends with
/// the line `# EOF`: what you add of your own goes before that.
///
/// Of a pool itself there are also its histograms, if it has a [`board`](crate::Builder::board); of
/// a snapshot only the counters.
///
/// ```
/// let pool = paceline::Pool::builder().board(true).build()?;
/// let text = paceline::observe::open_metrics(&[("orders", &pool)]);
/// assert!(text.contains("paceline_promotions_total{pool=\"orders\"} "));
/// assert!(text.contains("paceline_handler_seconds_count{pool=\"orders\"} "));
/// # std::io::Result::Ok(())
/// ```
#[must_use]
pub fn open_metrics<M: Metrics>(pools: &[(&str, M)]) -> String {
    let mut text = String::new();
    let named = |(pool, metrics): &(&str, M)| (escaped(pool), metrics.snapshot());
    let snapshots: Vec<_> = pools.iter().map(named).collect();
    for family in &FAMILIES {
        family.write(&snapshots, &mut text);
    }
    let named = |(pool, metrics): &(&str, M)| Some((escaped(pool), metrics.histograms()?));
    let histograms: Vec<_> = pools.iter().filter_map(named).collect();
    for family in TIMES.iter().filter(|_| !histograms.is_empty()) {
        family.write(&histograms, &mut text);
    }
    text.push_str("# EOF\n");
    text
}

/// The lines before a family's samples. To write into a string can't fail.
fn write_head(name: &str, help: &str, kind: &str, text: &mut String) {
    let _ = writeln!(text, "# TYPE paceline_{name} {kind}");
    if name.ends_with("_seconds") {
        let _ = writeln!(text, "# UNIT paceline_{name} seconds");
    }
    let _ = writeln!(text, "# HELP paceline_{name} {help}.");
}

impl TimeFamily {
    fn write(&self, pools: &[(String, Histograms)], text: &mut String) {
        let Self { name, help, of } = self;
        write_head(name, help, "histogram", text);
        for (pool, histograms) in pools {
            let times = of(histograms);
            let mut line = |bound: &str, count: u64| {
                let labels = format!("pool=\"{pool}\",le=\"{bound}\"");
                let _ = writeln!(text, "paceline_{name}_bucket{{{labels}}} {count}");
            };
            for power in POWERS {
                let bound = Duration::from_nanos((1 << power) - 1).as_secs_f64();
                line(&bound.to_string(), times.count_below_power(power));
            }
            line("+Inf", times.count());
            let (sum, count) = (times.sum().as_secs_f64(), times.count());
            let _ = writeln!(text, "paceline_{name}_sum{{pool=\"{pool}\"}} {sum}");
            let _ = writeln!(text, "paceline_{name}_count{{pool=\"{pool}\"}} {count}");
        }
    }
}

impl Family {
    fn write(&self, pools: &[(String, Snapshot)], text: &mut String) {
        let Self { name, help, .. } = self;
        let (kind, suffix) = match self.value {
            Counter(_) | Seconds(_) => ("counter", "_total"),
            Gauge(_) | Longest(_) => ("gauge", ""),
        };
        write_head(name, help, kind, text);
        for (pool, snapshot) in pools {
            let value = self.value_of(snapshot);
            let _ = writeln!(text, "paceline_{name}{suffix}{{pool=\"{pool}\"}} {value}");
        }
    }

    fn value_of(&self, snapshot: &Snapshot) -> String {
        match self.value {
            Counter(of) | Gauge(of) => of(snapshot).to_string(),
            Seconds(of) | Longest(of) => of(snapshot).to_string(),
        }
    }
}

/// As it may stand between quotes.
fn escaped(label: &str) -> String {
    let escapes = [("\\", "\\\\"), ("\"", "\\\""), ("\n", "\\n")];
    let escape = |text: String, (from, to): (&str, &str)| text.replace(from, to);
    escapes.into_iter().fold(label.to_owned(), escape)
}
