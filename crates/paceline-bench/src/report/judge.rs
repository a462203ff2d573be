//! How the goals stand.
//!
//! A [`Verdict`] never flatters: without enough pairs of sufficient length a goal stays open, and a bound close to
//! 1 asks for the whole confidence interval.

use crate::{
    goals::{goals, Against, Bound, Goal, Peer, Threads},
    statistics::{Ratios, Spread},
};

use super::{
    figures::ENOUGH,
    sample::{Entry, Samples},
};

/// Shorter measurements than this, in seconds, decide nothing: 3, and a hair for the clock.
const LONG_ENOUGH: f64 = 2.97;

/// A bound this close to 1 asks for the interval, not only for the median.
const CLOSE_TO_ONE: f64 = 0.1 + 1e-9;

/// The verdict on a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is kept, beyond doubt where doubt is near.
    Reached,
    /// It is not kept.
    Missed,
    /// The figures do not decide it.
    Open,
    /// There are no figures.
    NotMeasured,
}

impl Verdict {
    /// All of them.
    pub(super) const ALL: [Verdict; 4] = [
        Verdict::Reached,
        Verdict::Missed,
        Verdict::Open,
        Verdict::NotMeasured,
    ];

    /// Its name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Verdict::Reached => "reached",
            Verdict::Missed => "missed",
            Verdict::Open => "open",
            Verdict::NotMeasured => "not measured",
        }
    }

    /// What a range of figures says: one that holds the bound decides nothing.
    fn of_range(bound: Bound, low: f64, high: f64) -> Verdict {
        match (bound.holds(low), bound.holds(high)) {
            (true, true) => Verdict::Reached,
            (false, false) => Verdict::Missed,
            _ => Verdict::Open,
        }
    }
}

/// The figures of a goal.
#[derive(Clone, Debug)]
pub(super) enum Figures {
    /// The ratios to what it is measured by.
    Ratios(Ratios),
    /// The values themselves.
    Values(Option<Spread>),
}

impl Figures {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        match self {
            Figures::Ratios(ratios) => ratios.pairs(),
            Figures::Values(spread) => spread.map_or(0, |spread| spread.count),
        }
    }

    /// What they say about a bound, if they are enough.
    fn verdict(&self, bound: Bound) -> Verdict {
        match self {
            Figures::Ratios(ratios) => of_ratios(bound, ratios),
            // A bound on a time is a promise: the worst round has to keep it.
            Figures::Values(Some(spread)) => Verdict::of_range(bound, spread.max, spread.max),
            Figures::Values(None) => Verdict::NotMeasured,
        }
    }
}

/// What ratios say about a bound, if they are enough.
fn of_ratios(bound: Bound, ratios: &Ratios) -> Verdict {
    let (Some(spread), Some(interval)) = (ratios.spread(), ratios.interval()) else {
        return Verdict::Open;
    };
    if (bound.value() - 1.0).abs() <= CLOSE_TO_ONE {
        Verdict::of_range(bound, interval.low, interval.high)
    } else {
        Verdict::of_range(bound, spread.median, spread.median)
    }
}

/// A goal and its verdict.
#[derive(Clone, Debug)]
pub(super) struct Judgement<'a> {
    /// The goal.
    pub(super) goal: Goal,
    /// What it was compared with.
    pub(super) peer: Option<Entry<'a>>,
    /// The figures.
    pub(super) figures: Figures,
    /// The verdict.
    pub(super) verdict: Verdict,
    /// Why it is open or not measured; empty if it is neither.
    pub(super) remark: String,
}

/// Judges every goal by what was measured.
pub(super) fn judge_all<'a>(samples: &'a Samples<'_>) -> Vec<Judgement<'a>> {
    goals().map(|goal| judge(samples, goal)).collect()
}

/// Judges a goal by what was measured.
pub(super) fn judge<'a>(samples: &'a Samples<'_>, goal: Goal) -> Judgement<'a> {
    match samples.scene(goal.work, goal.place).find(goal.ours()) {
        Some(ours) => judge_ours(samples, goal, ours),
        None => Judgement::not_measured(goal, None, &format!("{} did not run", goal.ours())),
    }
}

/// Judges a goal by what we measured of ourselves.
fn judge_ours<'a>(samples: &'a Samples<'_>, goal: Goal, ours: Entry<'a>) -> Judgement<'a> {
    if let Against::Nothing = goal.against {
        let figures = Figures::Values(ours.spread(goal.quantity));
        return Judgement::of(goal, None, figures, ours.shortest());
    }
    let Some(peer) = opponent(samples, &goal, &ours) else {
        return Judgement::not_measured(goal, None, "no such run that counts");
    };
    let figures = Figures::Ratios(ours.ratios_to(&peer, goal.quantity));
    Judgement::of(
        goal,
        Some(peer),
        figures,
        ours.shortest().min(peer.shortest()),
    )
}

/// What a goal is measured by: of a peer's entries the best by the median of the goal's quantity.
fn opponent<'a>(samples: &'a Samples<'_>, goal: &Goal, ours: &Entry<'_>) -> Option<Entry<'a>> {
    match goal.against {
        Against::Nothing => None,
        Against::Itself(work, place) => samples.scene(work, place).ours(),
        Against::Peer(peer) => {
            let scene = samples.scene(goal.work, goal.place);
            let entries = scene.entries().into_iter();
            let measured = entries.filter(|entry| entry.spread(goal.quantity).is_some());
            let eligible = measured.filter(|entry| is_eligible(&peer, entry, ours));
            eligible.reduce(|best, entry| better(goal, best, entry))
        }
    }
}

/// Whether an entry belongs to a peer.
fn is_eligible(peer: &Peer, entry: &Entry<'_>, ours: &Entry<'_>) -> bool {
    let by_threads = match peer.threads {
        Threads::Any => true,
        Threads::Equal => entry.threads == ours.threads,
        Threads::Exactly(threads) => entry.threads == threads,
    };
    let by_name = peer.servers.contains(&entry.server);
    by_threads && (by_name || peer.servers.is_empty() && !entry.is_of_the_house())
}

/// The better of two by their medians.
fn better<'a>(goal: &Goal, one: Entry<'a>, other: Entry<'a>) -> Entry<'a> {
    let less = one.by_median(&other, goal.quantity).is_lt();
    if less == goal.quantity.more_is_better() {
        other
    } else {
        one
    }
}

impl<'a> Judgement<'a> {
    /// By figures, of which the shortest measurement took this many seconds.
    fn of(goal: Goal, peer: Option<Entry<'a>>, figures: Figures, shortest: f64) -> Judgement<'a> {
        let count = figures.count();
        if count == 0 {
            return Judgement::not_measured(goal, peer, "no clean pair of one round");
        }
        let (verdict, remark) = if count < ENOUGH {
            (Verdict::Open, format!("{count} of {ENOUGH} rounds"))
        } else if shortest < LONG_ENOUGH {
            (Verdict::Open, format!("runs of {shortest:.1} s"))
        } else {
            decided(figures.verdict(goal.bound))
        };
        Judgement {
            goal,
            peer,
            figures,
            verdict,
            remark,
        }
    }

    /// Without figures.
    fn not_measured(goal: Goal, peer: Option<Entry<'a>>, remark: &str) -> Judgement<'a> {
        Judgement {
            goal,
            peer,
            figures: Figures::Values(None),
            verdict: Verdict::NotMeasured,
            remark: remark.to_owned(),
        }
    }
}

/// A verdict of enough figures with its remark.
fn decided(verdict: Verdict) -> (Verdict, String) {
    let remark = match verdict {
        Verdict::Open => "the bound is within the interval",
        _ => "",
    };
    (verdict, remark.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        goals::Quantity,
        record::{Place, Record},
        report::synthetic::{by_rounds, record},
    };

    /// Rounds of a server.
    fn rounds(server: &str, throughputs: &[f64]) -> Vec<Record> {
        let values = throughputs.iter().enumerate();
        values
            .map(|(round, &value)| record("short-requests", server, round, value))
            .collect()
    }

    /// The goal of `short-requests`, apart, in throughput, to the peer of this name.
    fn goal_to(name: &str) -> Goal {
        let is_it = |goal: &Goal| {
            let by_name =
                matches!(goal.against, Against::Peer(peer) if peer.name.starts_with(name));
            by_name && goal.work == "short-requests" && goal.place == Place::Apart
        };
        goals()
            .find(|goal| is_it(goal) && goal.quantity == Quantity::Throughput)
            .unwrap()
    }

    /// The verdict on us against a peer.
    fn verdict(name: &str, server: &str, ours: &[f64], peer: &[f64]) -> Verdict {
        let run = by_rounds([rounds("paceline", ours), rounds(server, peer)].concat());
        judge(&Samples::of(&run), goal_to(name)).verdict
    }

    #[test]
    fn a_bound_close_to_one_asks_for_the_whole_interval() {
        let bare = |ours: &[f64]| verdict("bare", "bare", ours, &[100.0; 6]);
        assert_eq!(
            bare(&[101.0, 102.0, 103.0, 104.0, 105.0, 106.0]),
            Verdict::Reached
        );
        assert_eq!(
            bare(&[91.0, 92.0, 93.0, 110.0, 111.0, 112.0]),
            Verdict::Open
        );
        assert_eq!(bare(&[91.0, 92.0, 93.0, 94.0, 95.0, 96.0]), Verdict::Missed);
    }

    #[test]
    fn a_bound_far_from_one_asks_for_the_median_unrounded() {
        let half_sync = |ours| verdict("half-sync", "half-sync", &[ours; 5], &[100.0; 5]);
        assert_eq!(half_sync(135.0), Verdict::Reached);
        assert_eq!(half_sync(134.999), Verdict::Missed);
    }

    #[test]
    fn few_rounds_decide_nothing() {
        assert_eq!(verdict("bare", "bare", &[200.0], &[100.0]), Verdict::Open);
        assert_eq!(
            verdict("bare", "bare", &[200.0; 4], &[100.0; 4]),
            Verdict::Open
        );
        assert_eq!(
            verdict("bare", "bare", &[10.0; 4], &[100.0; 4]),
            Verdict::Open
        );
    }

    #[test]
    fn short_runs_decide_nothing() {
        let mut records = [rounds("paceline", &[200.0; 6]), rounds("bare", &[100.0; 6])].concat();
        records[0].load.seconds = 1.0;
        let run = by_rounds(records);
        let samples = Samples::of(&run);
        let judged = judge(&samples, goal_to("bare"));
        assert_eq!(
            (judged.verdict, &*judged.remark),
            (Verdict::Open, "runs of 1.0 s")
        );
    }

    #[test]
    fn without_a_peer_or_a_pair_there_is_no_figure() {
        assert_eq!(
            verdict("bare", "may", &[1.0; 6], &[1.0; 6]),
            Verdict::NotMeasured
        );
        assert_eq!(
            verdict("bare", "bare", &[], &[1.0; 6]),
            Verdict::NotMeasured
        );
        assert_eq!(
            verdict("bare", "bare", &[0.0; 6], &[1.0; 6]),
            Verdict::NotMeasured
        );
    }

    #[test]
    fn the_best_setting_counts() {
        let servers = [("paceline", 100.0), ("tokio", 80.0), ("tokio-eager", 90.0)];
        let of = |(server, value): (&str, f64)| rounds(server, &[value; 5]);
        let run = by_rounds(servers.map(of).concat());
        assert_eq!(
            judge(&Samples::of(&run), goal_to("tokio"))
                .peer
                .unwrap()
                .server,
            "tokio-eager"
        );
    }

    #[test]
    fn the_best_of_a_cost_is_the_least() {
        let mut records = [rounds("paceline", &[100.0; 5]), rounds("tokio", &[80.0; 5])].concat();
        records.extend(rounds("tokio-eager", &[90.0; 5]));
        records
            .iter_mut()
            .for_each(|record| record.load.server_cpu = 1.0);
        let run = by_rounds(records);
        let cost = Goal {
            quantity: Quantity::Cpu,
            ..goal_to("tokio")
        };
        assert_eq!(
            judge(&Samples::of(&run), cost).peer.unwrap().server,
            "tokio-eager"
        );
    }

    #[test]
    fn another_number_of_threads_is_another_peer() {
        assert_eq!(
            verdict("textbook", "textbook", &[200.0; 5], &[100.0; 5]),
            Verdict::NotMeasured
        );
    }
}
