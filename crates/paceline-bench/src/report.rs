//! The report of a run: text with tables, and plots.
//!
//! ```text
//!  records -- sample: values by round -- judge: how the goals stand
//!                          |                        |
//!                          +-----> text: tables <---+        [markdown]
//!                          +-----> plot: SVG    <---+        [plots]
//! ```

mod figures;
mod judge;
mod plot;
mod sample;
#[cfg(test)]
mod synthetic;
mod table;
mod text;

use crate::record::Run;
use sample::Samples;

/// The report as Markdown. `plots` is the folder of the plots, as seen from the report; without it there are only
/// tables.
pub(crate) fn markdown(run: &Run, plots: Option<&str>) -> String {
    text::markdown(run, plots)
}

/// The plots of a run: file names and SVG documents.
pub(crate) fn plots(run: &Run) -> Vec<(String, String)> {
    let drawn = plot::all(&Samples::of(run)).into_iter();
    drawn.map(|plot| (plot.file, plot.svg)).collect()
}
