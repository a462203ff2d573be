//! The report's text: what ran where, the works, the goals, and how to read it all.

mod counts;
mod goals;
mod servers;

use std::collections::BTreeMap;

use crate::record::{Record, Run};

use super::{
    plot::{self, Plot},
    sample::{is_faulty, Samples, Scene},
};

/// How to read the figures, at the end of every report.
const NOISE: &str = "\
## How to read the noise

- **Compare ratios, not columns.** The machine drifts from hour to hour. Servers were measured in turns, half a second
  each, always beside ours. A ratio is taken of two such half seconds, then the median over the round, then over the
  rounds (of latencies over the whole round, where half a second has too few). Two medians from two columns may differ by
  more than the servers do.
- **`188 [179-197]`** is the median of the runs that count, and the least and the greatest of them.
  **`1.02 [0.98-1.05]`** is the median of the paired ratios and its 95 % confidence interval: a bootstrap over the
  rounds, with a fixed seed, so that the same records give the same report. An interval that holds 1.00 shows no
  difference. With five rounds it is hardly narrower than from the least ratio to the greatest.
- **Made again** are slices in which others used the machine, or the host took time away, beyond a limit, or moved the
  cores; and those beside them. **Discarded** are measurements that are not whole without such slices, and those with a wrong reply or none.
- **CPU per request** is more reliable than throughput here, because client and server share few cores. Throughput is better
  when it is more, everything else when it is less.
- **Latencies** are those of the requests in focus: where some sleep, of the others; of pairs, of the second. A
  connection has a fixed number of requests under way, so latencies grow with the number of connections. The maximum is
  the one worst request of a run: on a shared machine it says more about the machine.
- **Reached** needs at least five pairs of runs of 3 s. A bound within 10 % of 1 also needs its whole interval on the
  right side; if the interval holds the bound the goal is **open**, if it lies on the wrong side it is **missed**. Other
  bounds are decided by the median, unrounded; a bound on a time by the worst round.
";

/// The report as Markdown, with links to plots if these are in a folder.
pub(super) fn markdown(run: &Run, folder: Option<&str>) -> String {
    let samples = Samples::of(run);
    let plots = Plots::of(&samples, folder);
    let sections = [
        head(run),
        works(&samples, &plots),
        courses(&plots),
        goals::section(&samples, &plots),
        counts::section(run),
        NOISE.to_owned(),
    ];
    let filled = sections.into_iter().filter(|section| !section.is_empty());
    filled.collect::<Vec<_>>().join("\n")
}

/// The plots that can be shown.
struct Plots<'a> {
    /// Their folder, as seen from the report.
    folder: &'a str,
    /// The plots.
    plots: Vec<Plot>,
}

impl Plots<'_> {
    /// Those of a folder; none without one.
    fn of<'a>(samples: &Samples<'_>, folder: Option<&'a str>) -> Plots<'a> {
        Plots {
            folder: folder.unwrap_or_default().trim_end_matches('/'),
            plots: folder.map_or(Vec::new(), |_| plot::all(samples)),
        }
    }

    /// The links to the plots whose file names begin so; empty if there are none.
    fn links(&self, start: &str) -> String {
        let shown = self
            .plots
            .iter()
            .filter(|plot| plot.file.starts_with(start));
        let link = |plot: &Plot| format!("![{}]({}/{})\n\n", plot.title, self.folder, plot.file);
        shown.map(link).collect()
    }
}

/// What ran where, and what is missing.
fn head(run: &Run) -> String {
    let machine = &run.machine;
    let mut text = format!(
        "# Paceline beside its peers\n\n\
         - Machine: {}, {} cores\n- Kernel: {}\n- Compiler: {}\n- Source: {}\n- Measurements: {}\n{}{}\n",
        machine.processor,
        machine.cores,
        machine.kernel,
        machine.compiler,
        run.source,
        discarded(&run.records),
        faults(&run.records),
        absent(run),
    );
    text += &format!("```text\n{}\n```\n", run.command);
    text
}

/// How many measurements there are, and how many of them do not count.
fn discarded(records: &[Record]) -> String {
    let disturbed = records.iter().filter(|record| !record.clean).count();
    let faulty = |record: &&Record| record.clean && is_faulty(record);
    let faulty = records.iter().filter(faulty).count();
    format!(
        "{}{}; discarded: {disturbed} because others used the machine or its cores were moved, {faulty} with a wrong reply or none",
        records.len(),
        sliced(records),
    )
}

/// Of how many slices they are, and how many were made again; empty if they are of one piece.
fn sliced(records: &[Record]) -> String {
    let slices = || records.iter().filter_map(|record| record.slices.as_ref());
    let count: usize = slices().map(|slices| slices.kept.len()).sum();
    let again: usize = slices().map(|slices| slices.made_again).sum();
    match count {
        0 => String::new(),
        _ => format!(" of {count} slices, beside {again} that were made again"),
    }
}

/// Which servers gave wrong replies or none; empty if none did.
fn faults(records: &[Record]) -> String {
    let mut faults: BTreeMap<String, usize> = BTreeMap::new();
    for record in records.iter().filter(|record| is_faulty(record)) {
        let name = format!(
            "{} ({} {})",
            record.server,
            record.work,
            record.place.name()
        );
        *faults.entry(name).or_default() += 1;
    }
    let times = faults
        .iter()
        .map(|(name, count)| format!("{name}: {count}"));
    match times.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => none,
        some => format!("- Runs with a wrong reply or none: {some}\n"),
    }
}

/// Which peers could not be started.
fn absent(run: &Run) -> String {
    if run.absent.is_empty() {
        return "- Absent peers: none\n".to_owned();
    }
    let lines = run
        .absent
        .iter()
        .map(|reason| format!("  - {}\n", reason.replace('\n', " ")));
    format!("- Absent peers:\n{}", lines.collect::<String>())
}

/// All works, each with its places.
fn works(samples: &Samples<'_>, plots: &Plots<'_>) -> String {
    let mut text = String::from("## Works\n");
    let mut last = "";
    for scene in samples.scenes() {
        if scene.work != last {
            text += &format!("\n### {}: {}\n", scene.work, scene.about());
            last = scene.work;
        }
        text += &format!("\n#### {}\n\n{}\n\n", scene.name(), threads(scene));
        text += &plots.links(&plot::file_of(scene));
        text += &servers::tables(scene);
    }
    text
}

/// How many threads the servers were given.
fn threads(scene: Scene<'_>) -> String {
    let numbers: Vec<String> = scene.threads().iter().map(usize::to_string).collect();
    format!("Threads, where they can be chosen: {}.", numbers.join(", "))
}

/// The plots over connections and threads; empty if there are none.
fn courses(plots: &Plots<'_>) -> String {
    match plots.links(plot::COURSE) {
        none if none.is_empty() => none,
        links => {
            format!("## Over connections and threads\n\n{links}")
                .trim_end()
                .to_owned()
                + "\n"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        record::{Slice, Slices},
        report::synthetic::{noisy_run, record, run_of},
    };

    /// That a report says nothing that is no number.
    fn assert_only_numbers(run: &Run) -> String {
        let text = markdown(run, Some("plots"));
        let mut all = plot::all(&Samples::of(run))
            .into_iter()
            .map(|plot| plot.svg)
            .collect::<String>();
        all += &text;
        let words = all.split(|c: char| !c.is_alphanumeric());
        let bad = words.filter(|word| matches!(*word, "NaN" | "inf")).count();
        assert_eq!(bad, 0, "{text}");
        text
    }

    #[test]
    fn a_whole_run_has_every_section() {
        let text = assert_only_numbers(&noisy_run(2));
        for heading in [
            "## Works",
            "### short-requests: 64",
            "#### short-requests, apart",
            "## Goals",
            "## How to read",
        ] {
            assert!(text.contains(heading), "{heading}");
        }
        assert!(text.contains("  - ace-dev-poll: the library is not installed"));
    }

    #[test]
    fn repeated_slices_are_reported() {
        let mut sliced = record("short-requests", "bare", 0, 100.0);
        let (kept, made_again) = (vec![Slice::of(&sliced.load); 6], 2);
        sliced.slices = Some(Slices {
            kept,
            made_again,
            beside: None,
        });
        let text = assert_only_numbers(&run_of(vec![sliced]));
        assert!(text
            .contains("Measurements: 1 of 6 slices, beside 2 that were made again; discarded: 0"));
    }

    #[test]
    fn an_empty_run_has_a_report() {
        let text = assert_only_numbers(&run_of(Vec::new()));
        assert!(text.contains("Absent peers: none"));
        assert!(text.contains("not measured"));
        assert!(!text.contains(".svg"));
    }

    #[test]
    fn a_single_round_has_figures_and_decides_nothing() {
        let text = assert_only_numbers(&noisy_run(1));
        assert!(text.contains("[1 pair]"));
        assert!(!text.contains("| reached"));
    }

    #[test]
    fn servers_without_replies_have_dashes() {
        let mut silent = record("short-requests", "bare", 0, 0.0);
        silent.load.seconds = 0.0;
        let text = assert_only_numbers(&run_of(vec![
            silent,
            record("short-requests", "paceline", 0, 100.0),
        ]));
        assert!(text.contains("Runs with a wrong reply or none: bare (short-requests apart): 1"));
    }

    #[test]
    fn when_nothing_is_clean_there_is_still_a_report() {
        let mut run = noisy_run(1);
        run.records
            .iter_mut()
            .for_each(|record| record.clean = false);
        assert!(!assert_only_numbers(&run).contains(".svg"));
    }

    #[test]
    fn every_plot_is_linked_once() {
        let run = noisy_run(2);
        let text = markdown(&run, Some("figures/"));
        for plot in plot::all(&Samples::of(&run)) {
            let link = format!("(figures/{})", plot.file);
            assert_eq!(text.matches(&link).count(), 1, "{link}");
        }
    }
}
