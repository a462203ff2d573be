//! The plots of a run, as SVG written by hand.
//!
//! ```text
//!  servers   per work and place: throughput and processor time of every server
//!  ratios    over all goals: paceline / peer
//!  courses   over connections and threads
//!      \________ all draw on svg, along a scale
//! ```

mod courses;
mod ratios;
mod scale;
mod servers;
mod svg;

use super::sample::{Samples, Scene};

/// How the names of the files over connections and threads begin.
pub(super) const COURSE: &str = "over-";

/// How the names of the files of ratios begin.
pub(super) const RATIOS: &str = "ratios-";

/// The width of every plot.
const WIDTH: f64 = 800.0;

/// A plot.
#[derive(Debug)]
pub(super) struct Plot {
    /// Its file name.
    pub(super) file: String,
    /// What it shows, in a line.
    pub(super) title: String,
    /// The SVG document.
    pub(super) svg: String,
}

/// All plots for which there are figures.
pub(super) fn all(samples: &Samples<'_>) -> Vec<Plot> {
    let scenes = samples.scenes().filter_map(servers::plot);
    let courses = courses::plots(samples);
    let ratios = ratios::plots(samples);
    scenes.chain(courses).chain(ratios).collect()
}

/// The file name of a scene's plot.
pub(super) fn file_of(scene: Scene<'_>) -> String {
    format!("{}-{}.svg", scene.work, scene.place.name())
}
