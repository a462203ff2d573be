//! How servers fare as connections or threads grow: a line per server through the medians.

use crate::{
    goals::{Quantity, OURS},
    record::Place,
    report::sample::{Samples, Scene},
    statistics::Spread,
};

use super::{
    scale::{tick_text, Scale},
    svg::{Anchor, Svg},
    Plot, COURSE,
};

/// The upper and the lower end of the panels.
const HEIGHTS: (f64, f64) = (86.0, 322.0);
/// How many names stand in a row of the legend.
const NAMES_IN_ROW: usize = 4;
/// Colours of the peers that differ on white and on black; ours has its own.
const COLOURS: [&str; 6] = [
    "#3f7fc1", "#8a8f98", "#2a9d8f", "#a56cc1", "#b58900", "#d45087",
];
/// Where the colours have been used up, lines are broken.
const DASHES: [&str; 3] = ["none", "6 3", "2 3"];
/// What is shown: the quantity, its unit, its heading, and where its panel begins and ends.
const PANELS: [(Quantity, f64, &str, (f64, f64)); 2] = [
    (
        Quantity::Throughput,
        1e3,
        "throughput, 1000/s",
        (52.0, 384.0),
    ),
    (Quantity::Cpu, 1.0, "CPU, us per request", (450.0, 782.0)),
];

/// Works that differ in one number.
struct Course {
    /// The end of its file name.
    file: &'static str,
    /// What it shows.
    title: &'static str,
    /// What the number counts.
    unit: &'static str,
    /// How the names of its works begin; the number follows.
    start: &'static str,
    /// Another work that belongs to it, with its number.
    also: Option<(&'static str, f64)>,
}

/// All of them.
const COURSES: [Course; 3] = [
    Course {
        file: "active-connections",
        title: "Short requests over ever more connections",
        unit: "connections, all active",
        start: "connections-",
        also: Some(("short-requests", 64.0)),
    },
    Course {
        file: "idle-connections",
        title: "100 active connections among ever more idle ones",
        unit: "connections, 100 active",
        start: "mostly-idle-",
        also: None,
    },
    Course {
        file: "threads",
        title: "More threads than are needed",
        unit: "threads",
        start: "threads-",
        also: None,
    },
];

/// The plots for which there are at least two works.
pub(super) fn plots(samples: &Samples<'_>) -> Vec<Plot> {
    let places = [Place::Apart, Place::Together].into_iter();
    let both = places.flat_map(|place| COURSES.iter().map(move |course| (course, place)));
    both.filter_map(|(course, place)| course.plot(samples, place))
        .collect()
}

/// A work with its number.
type Point<'a> = (f64, Scene<'a>);

impl Course {
    /// Its plot in a place.
    fn plot(&self, samples: &Samples<'_>, place: Place) -> Option<Plot> {
        let points = self.points(samples, place);
        let lines = lines_of(&points);
        if lines.is_empty() {
            return None;
        }
        Some(Plot {
            file: format!("{COURSE}{}-{}.svg", self.file, place.name()),
            svg: self.drawn(place, &points, &lines),
            title: format!("{}, {}", self.title, place.name()),
        })
    }

    /// The works that were measured, by their numbers.
    fn points<'a>(&self, samples: &'a Samples<'_>, place: Place) -> Vec<Point<'a>> {
        let scenes = samples.scenes().filter(|scene| scene.place == place);
        let point = |scene: Scene<'a>| Some((self.number(scene.work)?, scene));
        let mut points: Vec<Point<'a>> = scenes.filter_map(point).collect();
        points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        points
    }

    /// The number of a work, if it belongs here.
    fn number(&self, work: &str) -> Option<f64> {
        let also = self.also.filter(|(name, _)| *name == work);
        let named = || work.strip_prefix(self.start)?.parse().ok();
        also.map(|(_, number)| number)
            .or_else(named)
            .filter(|number| *number > 0.0)
    }

    /// The picture.
    fn drawn(&self, place: Place, points: &[Point<'_>], lines: &[Line<'_>]) -> String {
        let about = format!(
            "{}; median, and from the least run to the greatest",
            place.name()
        );
        let mut svg = Svg::new(self.title, &about);
        let numbers: Vec<f64> = points.iter().map(|(number, _)| *number).collect();
        for (quantity, unit, heading, places) in PANELS {
            let courses: Vec<Values> = lines
                .iter()
                .map(|line| line.values(quantity, unit))
                .collect();
            let panel = Panel::new(&numbers, &courses, quantity, places);
            panel.axes(&mut svg, &numbers, heading, self.unit);
            // Ours is the first line, and is drawn last: above the others.
            for (line, values) in lines.iter().zip(&courses).rev() {
                panel.line(&mut svg, line, values);
            }
        }
        let bottom = legend(&mut svg, lines);
        svg.finish(bottom)
    }
}

/// A server's medians, least and greatest values, by number.
type Values = Vec<(f64, Spread)>;

/// A server's course.
struct Line<'a> {
    /// The server's name.
    server: &'a str,
    /// The works.
    points: &'a [Point<'a>],
    /// Its place among the lines.
    index: usize,
}

/// The lines of all servers with at least two points, ours first.
fn lines_of<'a>(points: &'a [Point<'a>]) -> Vec<Line<'a>> {
    let entries = points.iter().flat_map(|(_, scene)| scene.entries());
    let mut servers: Vec<&str> = entries.map(|entry| entry.server).collect();
    servers.sort_by_key(|server| (*server != OURS, *server));
    servers.dedup();
    let mut lines: Vec<Line<'_>> = Vec::new();
    for server in servers {
        let index = lines.len();
        let line = Line {
            server,
            points,
            index,
        };
        if line.values(Quantity::Throughput, 1.0).len() > 1 {
            lines.push(line);
        }
    }
    lines
}

impl Line<'_> {
    /// Its values in a quantity. Of several numbers of threads the best by throughput is taken.
    fn values(&self, quantity: Quantity, unit: f64) -> Values {
        let value = |(number, scene): &Point<'_>| {
            let mut entries = scene.entries().into_iter();
            let entry = entries.find(|entry| entry.server == self.server)?;
            Some((*number, in_units(entry.spread(quantity)?, unit)))
        };
        self.points.iter().filter_map(value).collect()
    }

    /// Whether it is ours.
    fn is_ours(&self) -> bool {
        self.server == OURS
    }

    /// Its colour, width and dashes.
    fn style(&self) -> String {
        if self.is_ours() {
            return "stroke-width:3".to_owned();
        }
        let colour = COLOURS[self.index % COLOURS.len()];
        let dashes = DASHES[self.index / COLOURS.len() % DASHES.len()];
        format!("stroke:{colour};stroke-dasharray:{dashes}")
    }
}

/// A spread in other units.
fn in_units(spread: Spread, unit: f64) -> Spread {
    Spread {
        median: spread.median / unit,
        min: spread.min / unit,
        max: spread.max / unit,
        lower_quartile: spread.lower_quartile / unit,
        upper_quartile: spread.upper_quartile / unit,
        count: spread.count,
    }
}

/// One of the two panels.
struct Panel {
    /// From numbers to places, logarithmic.
    across: Scale,
    /// From values to places.
    up: Scale,
    /// Where it begins and ends.
    places: (f64, f64),
}

impl Panel {
    /// A panel on which all courses have a place.
    fn new(numbers: &[f64], courses: &[Values], quantity: Quantity, places: (f64, f64)) -> Panel {
        let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
        let values = courses.iter().flatten();
        let ends: Vec<f64> = values
            .flat_map(|(_, spread)| [spread.min, spread.max])
            .collect();
        let heights = (HEIGHTS.1, HEIGHTS.0);
        Panel {
            across: Scale::logarithmic((first / 1.2, last * 1.2), places),
            // What is slow may lie near zero; what is dear would press the others down to it.
            up: if quantity.more_is_better() {
                Scale::from_zero(ends, heights)
            } else {
                Scale::fitting(&ends, heights)
            },
            places,
        }
    }

    /// Draws the grid, its values and what they are.
    fn axes(&self, svg: &mut Svg, numbers: &[f64], heading: &str, unit: &str) {
        let ((left, right), (top, bottom)) = (self.places, HEIGHTS);
        let kind = if self.up.is_logarithmic() {
            ", log scale"
        } else {
            ""
        };
        svg.text(
            "small",
            (left - 30.0, top - 12.0),
            Anchor::Start,
            &format!("{heading}{kind}"),
        );
        for tick in self.up.ticks() {
            let y = self.up.at(tick);
            svg.line("grid", (left, y), (right, y));
            svg.text(
                "small faint",
                (left - 6.0, y + 4.0),
                Anchor::End,
                &tick_text(tick),
            );
        }
        for number in numbers {
            let x = self.across.at(*number);
            svg.line("axis", (x, bottom), (x, bottom + 4.0));
            svg.text(
                "small faint",
                (x, bottom + 17.0),
                Anchor::Middle,
                &tick_text(*number),
            );
        }
        svg.line("axis", (left, bottom), (right, bottom));
        svg.text(
            "small",
            ((left + right) / 2.0, bottom + 34.0),
            Anchor::Middle,
            unit,
        );
    }

    /// Draws a server's line with its spreads.
    fn line(&self, svg: &mut Svg, line: &Line<'_>, values: &Values) {
        let (style, class) = (
            line.style(),
            if line.is_ours() { "line ours" } else { "line" },
        );
        let place =
            |(number, spread): &(f64, Spread)| (self.across.at(*number), self.up.at(spread.median));
        let medians: Vec<(f64, f64)> = values.iter().map(place).collect();
        svg.path(class, &style, &medians);
        for ((x, y), (_, spread)) in medians.into_iter().zip(values) {
            let whisker = [(x, self.up.at(spread.min)), (x, self.up.at(spread.max))];
            svg.path(
                class,
                &format!("{style};stroke-width:1.2;stroke-dasharray:none"),
                &whisker,
            );
            svg.circle(
                class,
                &format!("{style};stroke-dasharray:none"),
                (x, y),
                2.0,
            );
        }
    }
}

/// Draws the legend, and returns where it ends.
fn legend(svg: &mut Svg, lines: &[Line<'_>]) -> f64 {
    for (index, line) in lines.iter().enumerate() {
        let x = 20.0 + 195.0 * (index % NAMES_IN_ROW) as f64;
        let y = HEIGHTS.1 + 62.0 + 18.0 * (index / NAMES_IN_ROW) as f64;
        let class = if line.is_ours() {
            ("line ours", "ours-text")
        } else {
            ("line", "small")
        };
        svg.path(class.0, &line.style(), &[(x, y - 4.0), (x + 24.0, y - 4.0)]);
        svg.text(class.1, (x + 30.0, y), Anchor::Start, line.server);
    }
    HEIGHTS.1 + 62.0 + 18.0 * lines.len().div_ceil(NAMES_IN_ROW) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{record, run_of};

    #[test]
    fn two_points_make_a_line_and_one_none() {
        let run = run_of(vec![
            record("threads-4", "paceline", 0, 100.0),
            record("threads-16", "paceline", 0, 100.0),
            record("connections-512", "paceline", 0, 100.0),
        ]);
        let files: Vec<String> = plots(&Samples::of(&run))
            .into_iter()
            .map(|plot| plot.file)
            .collect();
        assert_eq!(files, ["over-threads-apart.svg"]);
    }

    #[test]
    fn names_of_other_works_are_no_numbers() {
        let [active, ..] = COURSES;
        assert_eq!(active.number("connections-512"), Some(512.0));
        assert_eq!(active.number("short-requests"), Some(64.0));
        assert_eq!(
            [
                active.number("connections-many"),
                active.number("connections-0"),
                active.number("one-connection")
            ],
            [None; 3]
        );
    }
}
