//! All servers under one work: throughput and processor time per request, side by side.
//!
//! A bar ends at the median; the line is from the least to the greatest run. A bar that would make all others small
//! is broken: it leaves the scale, and only its figure shows how long it is.

use crate::{
    goals::Quantity,
    report::{
        figures,
        sample::{Entry, Scene},
    },
    statistics::Spread,
};

use super::{
    file_of,
    scale::{tick_text, Scale},
    svg::{Anchor, Svg},
    Plot, WIDTH,
};

/// Where the names end.
const NAMES: f64 = 192.0;
/// Where the rows begin.
const TOP: f64 = 80.0;
/// How high a row is.
const ROW: f64 = 22.0;
/// A bar that is so many times as long as the one in the middle is broken.
const FAR: f64 = 4.0;

/// One of the two panels.
struct Panel {
    /// What it shows.
    quantity: Quantity,
    /// The unit of the values.
    unit: f64,
    /// Its heading.
    heading: &'static str,
    /// Where it begins and ends; the medians are written behind it.
    places: (f64, f64),
}

/// The two panels.
const PANELS: [Panel; 2] = [
    Panel {
        quantity: Quantity::Throughput,
        unit: 1e3,
        heading: "throughput, 1000/s: more is better",
        places: (200.0, 440.0),
    },
    Panel {
        quantity: Quantity::Cpu,
        unit: 1.0,
        heading: "CPU, us per request: less is better",
        places: (508.0, 748.0),
    },
];

/// The plot of a scene; none if there is nothing to compare.
pub(super) fn plot(scene: Scene<'_>) -> Option<Plot> {
    let entries = scene.entries();
    let measured = |entry: &Entry<'_>| entry.spread(Quantity::Throughput).is_some();
    let entries: Vec<Entry<'_>> = entries.into_iter().filter(measured).collect();
    if entries.len() < 2 {
        return None;
    }
    Some(Plot {
        file: file_of(scene),
        title: format!("{}: {}", scene.name(), scene.about()),
        svg: drawn(scene, &entries),
    })
}

/// The picture of some servers.
fn drawn(scene: Scene<'_>, entries: &[Entry<'_>]) -> String {
    let mut svg = Svg::new(&scene.name(), scene.about());
    stripes(&mut svg, entries.len());
    for (row, entry) in entries.iter().enumerate() {
        let class = if entry.is_ours() { "ours-text" } else { "" };
        svg.text(
            class,
            (NAMES, middle(row) + 4.0),
            Anchor::End,
            &entry.label(),
        );
    }
    for panel in &PANELS {
        panel.draw(&mut svg, entries);
    }
    let bottom = TOP + ROW * entries.len() as f64;
    let legend = "mark: median of the runs; line: from the least run to the greatest; broken bar: far beyond the scale";
    svg.text("small faint", (12.0, bottom + 38.0), Anchor::Start, legend);
    svg.finish(bottom + 50.0)
}

/// Every other row is tinted.
fn stripes(svg: &mut Svg, rows: usize) {
    for row in (0..rows).step_by(2) {
        svg.rect("stripe", (0.0, middle(row) - ROW / 2.0), (WIDTH, ROW));
    }
}

/// The middle of a row.
fn middle(row: usize) -> f64 {
    TOP + ROW * (row as f64 + 0.5)
}

/// The colour of a server.
fn class(entry: &Entry<'_>) -> &'static str {
    match (entry.is_ours(), entry.is_of_the_house()) {
        (true, _) => "ours",
        (false, true) => "house",
        (false, false) => "peer",
    }
}

impl Panel {
    /// Draws it.
    fn draw(&self, svg: &mut Svg, entries: &[Entry<'_>]) {
        let spreads: Vec<_> = entries
            .iter()
            .map(|entry| entry.spread(self.quantity))
            .collect();
        let scale = self.scale(&spreads);
        svg.text(
            "small",
            (self.places.0, TOP - 10.0),
            Anchor::Start,
            self.heading,
        );
        self.axis(svg, &scale, entries.len());
        for (row, (entry, spread)) in entries.iter().zip(spreads).enumerate() {
            self.row(svg, &scale, row, entry, spread);
        }
    }

    /// A scale on which all have a place but those that are far beyond the others.
    fn scale(&self, spreads: &[Option<Spread>]) -> Scale {
        let known = || spreads.iter().flatten();
        let middle = Spread::of(known().map(|spread| spread.median));
        let far = middle.map_or(0.0, |middle| middle.median * FAR);
        let near = known().filter(|spread| spread.median <= far);
        Scale::from_zero(near.map(|spread| spread.max / self.unit), self.places)
    }

    /// Draws the grid and the values under it.
    fn axis(&self, svg: &mut Svg, scale: &Scale, rows: usize) {
        let bottom = TOP + ROW * rows as f64;
        for tick in scale.ticks() {
            let x = scale.at(tick);
            svg.line("grid", (x, TOP), (x, bottom));
            svg.text(
                "small faint",
                (x, bottom + 15.0),
                Anchor::Middle,
                &tick_text(tick),
            );
        }
        svg.line("axis", (self.places.0, TOP), (self.places.0, bottom));
    }

    /// Draws a server's row.
    fn row(
        &self,
        svg: &mut Svg,
        scale: &Scale,
        row: usize,
        entry: &Entry<'_>,
        spread: Option<Spread>,
    ) {
        let (y, behind) = (middle(row), (self.places.1 + 6.0, middle(row) + 4.0));
        let Some(spread) = spread else {
            return svg.text("small faint", behind, Anchor::Start, "-");
        };
        if spread.median / self.unit > scale.end() {
            self.broken_bar(svg, y, class(entry));
        } else {
            self.bar(svg, scale, y, class(entry), &spread);
        }
        let text = figures::number(spread.median / self.unit);
        let emphasis = if entry.is_ours() {
            "ours-text"
        } else {
            "small"
        };
        svg.text(emphasis, behind, Anchor::Start, &text);
    }

    /// A bar to the median, with its spread.
    fn bar(&self, svg: &mut Svg, scale: &Scale, y: f64, class: &str, spread: &Spread) {
        let at = |value: f64| scale.at(value / self.unit);
        let (foot, x) = (self.places.0, at(spread.median));
        svg.rect(&format!("bar-{class}"), (foot, y - 6.0), (x - foot, 12.0));
        svg.line(
            &format!("line {class}"),
            (at(spread.min), y),
            (at(spread.max), y),
        );
        svg.line(&format!("mark {class}"), (x, y - 7.0), (x, y + 7.0));
    }

    /// A bar over the whole scale and beyond.
    fn broken_bar(&self, svg: &mut Svg, y: f64, class: &str) {
        let (foot, end) = self.places;
        svg.rect(&format!("bar-{class}"), (foot, y - 6.0), (end - foot, 12.0));
        for x in [end - 16.0, end - 10.0] {
            svg.line("gap", (x - 3.0, y + 8.0), (x + 3.0, y - 8.0));
        }
    }
}
