//! All goals of a quantity at a glance: paceline / peer, around the line at 1.
//!
//! A verdict has a colour and a shape: a disc is reached, a ring open, a diamond missed. What matters is near
//! 1; a ratio far from it is an arrow at the edge, and its figure.

use crate::{
    goals::{Against, Bound, Quantity},
    report::{
        figures,
        judge::{judge_all, Figures, Judgement, Verdict},
        sample::Samples,
    },
    statistics::{Interval, Ratios},
};

use super::{
    scale::{tick_text, Scale},
    svg::{Anchor, Svg},
    Plot, RATIOS, WIDTH,
};

/// Where the plot begins and ends; names stand before it and figures behind.
const PLACES: (f64, f64) = (290.0, 672.0);
/// Where the rows begin.
const TOP: f64 = 96.0;
/// How high a row is.
const ROW: f64 = 20.0;
/// What the scale shows at least.
const AROUND_ONE: (f64, f64) = (0.8, 1.25);
/// What it shows at most.
const NEAR_ONE: (f64, f64) = (0.25, 2.5);

/// A plot of some quantities.
struct Kind {
    /// The end of its file name.
    file: &'static str,
    /// What is compared.
    title: &'static str,
    /// Which side is good.
    about: &'static str,
    /// Which quantities these are.
    shows: fn(Quantity) -> bool,
}

/// The plots.
const KINDS: [Kind; 3] = [
    Kind {
        file: "throughput",
        title: "Throughput, paceline / peer",
        about: "one row per goal that was measured; more is better",
        shows: |quantity| quantity == Quantity::Throughput,
    },
    Kind {
        file: "cpu",
        title: "CPU per request, paceline / peer",
        about: "one row per goal that was measured; less is better",
        shows: |quantity| quantity == Quantity::Cpu,
    },
    Kind {
        file: "latency",
        title: "Latency, paceline / peer",
        about: "one row per goal that was measured; less is better",
        shows: Quantity::is_latency,
    },
];

/// A goal with its ratios.
struct Row<'a> {
    /// The goal and its verdict.
    judgement: &'a Judgement<'a>,
    /// The median of the ratios.
    median: f64,
    /// Where it lies, if there are enough to tell.
    interval: Option<Interval>,
}

impl<'a> Row<'a> {
    /// The row of a goal; none without a positive ratio.
    fn of(judgement: &'a Judgement<'a>) -> Option<Row<'a>> {
        let Figures::Ratios(ratios) = &judgement.figures else {
            return None;
        };
        Some(Row {
            judgement,
            median: positive_median(ratios)?,
            interval: ratios.interval(),
        })
    }

    /// What it needs of the scale.
    fn ends(&self) -> [f64; 3] {
        let (low, high) = self
            .interval
            .map_or((self.median, self.median), |it| (it.low, it.high));
        [low, high, self.judgement.goal.bound.value()]
    }
}

/// The median of ratios that are all positive: only these have a place on the scale.
fn positive_median(ratios: &Ratios) -> Option<f64> {
    let spread = ratios.spread()?;
    (spread.min > 0.0).then_some(spread.median)
}

/// The plots for which there are ratios.
pub(super) fn plots(samples: &Samples<'_>) -> Vec<Plot> {
    let judgements = judge_all(samples);
    KINDS
        .iter()
        .filter_map(|kind| plot(&judgements, kind))
        .collect()
}

/// The plot of some quantities; none without a ratio.
fn plot(judgements: &[Judgement<'_>], kind: &Kind) -> Option<Plot> {
    let shown = judgements
        .iter()
        .filter(|judgement| (kind.shows)(judgement.goal.quantity));
    let rows: Vec<Row<'_>> = shown.filter_map(Row::of).collect();
    rows.first()?;
    Some(Plot {
        file: format!("{RATIOS}{}.svg", kind.file),
        title: format!("{}: {}", kind.title, kind.about),
        svg: drawn(kind, &rows),
    })
}

/// The picture of some goals.
fn drawn(kind: &Kind, rows: &[Row<'_>]) -> String {
    let mut svg = Svg::new(kind.title, kind.about);
    legend(&mut svg);
    for row in (0..rows.len()).step_by(2) {
        svg.rect("stripe", (0.0, middle(row) - ROW / 2.0), (WIDTH, ROW));
    }
    let scale = scale_of(rows);
    let bottom = TOP + ROW * rows.len() as f64;
    axis(&mut svg, &scale, bottom);
    for (index, row) in rows.iter().enumerate() {
        draw_row(&mut svg, &scale, middle(index), row);
    }
    svg.finish(bottom + 30.0)
}

/// The middle of a row.
fn middle(row: usize) -> f64 {
    TOP + ROW * (row as f64 + 0.5)
}

/// A scale on which every interval and every bound lies that is not far from 1.
fn scale_of(rows: &[Row<'_>]) -> Scale {
    let ends = rows.iter().flat_map(Row::ends);
    let wider = |(low, high): (f64, f64), end: f64| (low.min(end), high.max(end));
    let (low, high) = ends.fold(AROUND_ONE, wider);
    let (low, high) = (low.max(NEAR_ONE.0), high.min(NEAR_ONE.1));
    Scale::logarithmic((low / 1.04, high * 1.04), PLACES)
}

/// What the marks mean.
fn legend(svg: &mut Svg) {
    let y = 64.0;
    let entries = [
        (Verdict::Reached, 20.0, "reached"),
        (Verdict::Open, 98.0, "open"),
        (Verdict::Missed, 158.0, "missed"),
    ];
    for (verdict, x, name) in entries {
        mark(svg, verdict, (x, y - 4.0));
        svg.text("small", (x + 9.0, y), Anchor::Start, name);
    }
    svg.line("bound", (230.0, y - 10.0), (230.0, y + 2.0));
    svg.text("small", (238.0, y), Anchor::Start, "the goal's bound");
    let interval = "line: 95 % interval of the median ratio; log scale";
    svg.text("small faint", (352.0, y), Anchor::Start, interval);
}

/// The grid, its values, and the line at 1.
fn axis(svg: &mut Svg, scale: &Scale, bottom: f64) {
    for tick in scale.ticks() {
        let x = scale.at(tick);
        svg.line("grid", (x, TOP), (x, bottom));
        svg.text(
            "small faint",
            (x, TOP - 6.0),
            Anchor::Middle,
            &tick_text(tick),
        );
        svg.text(
            "small faint",
            (x, bottom + 15.0),
            Anchor::Middle,
            &tick_text(tick),
        );
    }
    svg.line("one", (scale.at(1.0), TOP), (scale.at(1.0), bottom));
}

/// A goal: its name, bound, interval, median and figures.
fn draw_row(svg: &mut Svg, scale: &Scale, y: f64, row: &Row<'_>) {
    let goal = &row.judgement.goal;
    svg.text(
        "small",
        (PLACES.0 - 8.0, y + 4.0),
        Anchor::End,
        &name(row.judgement),
    );
    if is_near(goal.bound.value()) {
        let bound = scale.at(goal.bound.value());
        svg.line("bound", (bound, y - 7.0), (bound, y + 7.0));
    }
    draw_ratio(svg, scale, y, row);
    let sign = match goal.bound {
        Bound::AtLeast(_) => ">=",
        Bound::AtMost(_) => "<=",
    };
    let text = format!(
        "{} ({sign} {})",
        figures::number(row.median),
        tick_text(goal.bound.value())
    );
    svg.text("small", (PLACES.1 + 10.0, y + 4.0), Anchor::Start, &text);
}

/// The median with its interval, or an arrow if it is far from 1.
fn draw_ratio(svg: &mut Svg, scale: &Scale, y: f64, row: &Row<'_>) {
    let verdict = row.judgement.verdict;
    if !is_near(row.median) {
        return arrow(svg, verdict, y, row.median > 1.0);
    }
    if let Some(interval) = row.interval {
        let class = format!("line {}", class(verdict));
        svg.line(
            &class,
            (scale.at(interval.low), y),
            (scale.at(interval.high), y),
        );
    }
    mark(svg, verdict, (scale.at(row.median), y));
}

/// Whether a ratio is on the scale.
fn is_near(ratio: f64) -> bool {
    (NEAR_ONE.0..=NEAR_ONE.1).contains(&ratio)
}

/// An arrow to what is beyond one of the edges.
fn arrow(svg: &mut Svg, verdict: Verdict, y: f64, right: bool) {
    let (edge, back) = if right {
        (PLACES.1, -9.0)
    } else {
        (PLACES.0, 9.0)
    };
    svg.shape(
        class(verdict),
        &[(edge, y), (edge + back, y - 5.0), (edge + back, y + 5.0)],
    );
}

/// The mark of a verdict.
fn mark(svg: &mut Svg, verdict: Verdict, (x, y): (f64, f64)) {
    let class = class(verdict);
    match verdict {
        Verdict::Missed => {
            svg.shape(
                class,
                &[(x - 5.0, y), (x, y - 5.0), (x + 5.0, y), (x, y + 5.0)],
            );
        }
        _ => svg.circle(class, "stroke-width:2", (x, y), 4.0),
    }
}

/// The class of a verdict.
fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reached => "reached",
        Verdict::Missed => "missed",
        Verdict::Open | Verdict::NotMeasured => "open",
    }
}

/// What is compared with what.
fn name(judgement: &Judgement<'_>) -> String {
    let goal = &judgement.goal;
    let quantity = match goal.quantity {
        quantity if quantity.is_latency() => format!(" {}", quantity.name()),
        _ => String::new(),
    };
    let peer = match (goal.against, judgement.peer) {
        (Against::Itself(work, place), _) if place != goal.place => {
            format!("itself at {work} {}", place.name())
        }
        (Against::Itself(work, _), _) => format!("itself at {work}"),
        (_, Some(peer)) => peer.label(),
        (_, None) => String::new(),
    };
    format!("{} {}{quantity} / {peer}", goal.work, goal.place.name())
}
