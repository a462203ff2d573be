//! The table of the goals, each with its figures and its verdict.

use crate::{
    goals::{Against, Bound, Goal},
    report::{
        figures,
        judge::{judge_all, Figures, Judgement, Verdict},
        plot,
        sample::Samples,
        table::{Side, Table},
    },
};

use super::Plots;

/// The columns.
const HEAD: [(&str, Side); 11] = [
    ("work", Side::Left),
    ("place", Side::Left),
    ("against", Side::Left),
    ("entry", Side::Left),
    ("quantity", Side::Left),
    ("bound", Side::Right),
    ("ratio [95 %]", Side::Right),
    ("[min-max]", Side::Right),
    ("bare loop / it", Side::Right),
    ("pairs (lost)", Side::Right),
    ("verdict", Side::Left),
];

/// The section of the goals.
pub(super) fn section(samples: &Samples<'_>, plots: &Plots<'_>) -> String {
    let judgements = judge_all(samples);
    let mut table = Table::new(&HEAD);
    // What was not measured is counted above the table.
    let measured = |judgement: &&Judgement<'_>| judgement.verdict != Verdict::NotMeasured;
    for judgement in judgements.iter().filter(measured) {
        table.row(row(samples, judgement));
    }
    format!(
        "## Goals\n\n{}.\n\n{}{}",
        tally(&judgements),
        plots.links(plot::RATIOS),
        table.markdown()
    )
}

/// How many goals stand how.
fn tally(judgements: &[Judgement<'_>]) -> String {
    let count = |verdict| {
        let standing = judgements
            .iter()
            .filter(|judgement| judgement.verdict == verdict);
        format!("{} {}", standing.count(), verdict.name())
    };
    let counts: Vec<String> = Verdict::ALL.into_iter().map(count).collect();
    format!("{} goals: {}", judgements.len(), counts.join(", "))
}

/// A goal's row.
fn row(samples: &Samples<'_>, judgement: &Judgement<'_>) -> Vec<String> {
    let goal = &judgement.goal;
    let (figure, range, pairs) = cells(&judgement.figures);
    vec![
        goal.work.to_owned(),
        goal.place.name().to_owned(),
        against(goal),
        judgement.peer.map_or(String::new(), |peer| peer.label()),
        goal.quantity.name().to_owned(),
        bound(goal),
        figure,
        range,
        of_bare_loop(samples, judgement),
        pairs,
        verdict(judgement),
    ]
}

/// What the bare loop reaches against the same peer: it makes the system calls and does nothing else, so a goal
/// beyond that is beyond what they cost.
fn of_bare_loop(samples: &Samples<'_>, judgement: &Judgement<'_>) -> String {
    let goal = &judgement.goal;
    let bare = samples.scene(goal.work, goal.place).find("bare");
    match (bare, judgement.peer) {
        (Some(bare), Some(peer)) if peer.server != bare.server && !peer.is_ours() => {
            figures::ratio(&bare.ratios_to(&peer, goal.quantity), 3)
        }
        _ => String::new(),
    }
}

/// What the goal is measured by.
fn against(goal: &Goal) -> String {
    match goal.against {
        Against::Peer(peer) => peer.name.to_owned(),
        Against::Itself(work, place) if place == goal.place => format!("itself at {work}"),
        Against::Itself(work, place) => format!("itself at {work}, {}", place.name()),
        Against::Nothing => "two ticks and 100 us".to_owned(),
    }
}

/// What is to be kept.
fn bound(goal: &Goal) -> String {
    let sign = match goal.bound {
        Bound::AtLeast(_) => ">=",
        Bound::AtMost(_) => "<=",
    };
    match goal.against {
        Against::Nothing => format!("{sign} {:.0} us", goal.bound.value()),
        _ => format!("{sign} {:.2}", goal.bound.value()),
    }
}

/// The figure with its interval, the range, and the pairs.
fn cells(figures: &Figures) -> (String, String, String) {
    match figures {
        Figures::Ratios(ratios) => {
            let range = ratios.spread().map_or(String::new(), |spread| {
                format!("[{:.3}-{:.3}]", spread.min, spread.max)
            });
            let pairs = format!("{} ({})", ratios.pairs(), ratios.lost);
            (figures::ratio(ratios, 3), range, pairs)
        }
        Figures::Values(Some(spread)) => {
            let range = format!("[{:.0}-{:.0}]", spread.min, spread.max);
            (
                format!("{:.0} us", spread.median),
                range,
                format!("{} rounds", spread.count),
            )
        }
        Figures::Values(None) => ("-".to_owned(), String::new(), String::new()),
    }
}

/// The verdict, with the reason where there is one.
fn verdict(judgement: &Judgement<'_>) -> String {
    match &*judgement.remark {
        "" => judgement.verdict.name().to_owned(),
        remark => format!("{} ({remark})", judgement.verdict.name()),
    }
}
