//! `faults`: plants known bugs, one by one, in a copy of the tree, and shows that each is caught. A checker
//! that finds nothing in broken code is itself broken.

use std::collections::BTreeMap;
use std::time::Duration;
use std::{io, thread};

use crate::tree::Tree;
use xtask_common::args::Usage;
use xtask_common::table;
use xtask_common::verb::{Verb, Verdict};
use xtask_common::workspace::{self, Workspace};

use checker::{Checked, Checker, Lane, Run};
use fault::Fault;
use plant::Bench;

pub(crate) mod edit;
pub(crate) mod fault;

mod checker;
mod plant;

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "faults",
    summary: "plant known bugs in a copy of the tree and show that each is caught",
    help: "\
usage: cargo xtask faults [NAME...] [--list]

Each entry of the tables faults/*.toml is a bug: a text in the code and what takes its place, the story,
the promise that it breaks and the checker that must find it (faults/README.md has the form). For each:
restore a copy of the tree in target/faults, make the change, build, run the checker. The checker must
fail, or hang past the fault's limit; and before all that it must pass without the fault, in half of the
limit. Faults for loom and shuttle are planted in one copy, the others in two more, side by side.

  NAME    only these faults
  --list  print the faults, run nothing

A text that is not in the code exactly once, a fault that does not build, a fault that is not caught and
an empty list are failures. Logs are kept in target/faults/*/logs.",
    run: |mut args| {
        let list = args.flag("--list");
        let names = args.names()?;
        let (tree, faults) = match load() {
            Ok(loaded) => loaded,
            Err(why) => return Ok(Verdict::failed(why)),
        };
        let faults = select(faults, &names)?;
        Ok(if list {
            print_list(&faults)
        } else {
            plant_all(&tree, &faults)
        })
    },
};

/// What came of one fault.
enum Fate {
    /// The checker found it; the text says how.
    Caught(String),
    /// Nothing was shown; the text says why.
    Missed(String),
}

/// Plants every fault, for `ci`.
pub(crate) fn check() -> Verdict {
    match load() {
        Ok((tree, faults)) => plant_all(&tree, &faults),
        Err(why) => Verdict::failed(why),
    }
}

/// So many commits it takes until CI has planted every fault: all at once take longer than the rest of it.
const TURNS: usize = 64;

/// What CI plants: every sixty-fourth fault; which ones, changes with each commit.
pub(crate) fn check_some() -> Verdict {
    match load() {
        Ok((tree, faults)) => {
            let (all, turn) = (faults.len(), workspace::commits() % TURNS);
            let mut places = 0..;
            let mut some = faults;
            some.retain(|_| places.next().is_some_and(|at| at % TURNS == turn));
            let left = all - some.len();
            println!(
                "{left} of {all} faults are left for the next commits, or `cargo xtask faults`"
            );
            plant_all(&tree, &some)
        }
        Err(why) => Verdict::failed(why),
    }
}

/// Reads the tree and its faults; an entry that is not understood, or no fault at all, is an error.
fn load() -> Result<(Tree, Vec<Fault>), String> {
    let tree = Tree::tracked(&Workspace::this().root)
        .map_err(|error| format!("the tree cannot be read: {error}"))?;
    let faults: Result<Vec<_>, _> = fault::all(&tree).into_iter().collect();
    let faults =
        faults.map_err(|error| format!("{}:{}: {}", error.path, error.line, error.message))?;
    if faults.is_empty() {
        return Err("there is no fault in faults/*.toml: a run of none proves nothing".to_owned());
    }
    Ok((tree, faults))
}

/// The faults with these names, or all if none is named.
fn select(faults: Vec<Fault>, names: &[String]) -> Result<Vec<Fault>, Usage> {
    let known = |name: &&String| faults.iter().any(|fault| fault.name == **name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        return Err(Usage(format!(
            "there is no fault `{unknown}` (`--list` prints what there is)"
        )));
    }
    let wanted = |fault: &Fault| names.is_empty() || names.contains(&fault.name);
    Ok(faults.into_iter().filter(wanted).collect())
}

/// Prints the faults.
fn print_list(faults: &[Fault]) -> Verdict {
    let rows = faults.iter().map(|fault| row(fault, fault.story.clone()));
    table::print(["fault", "promise", "caught by", "story"], rows);
    Verdict::passed(format!("{} faults", faults.len()))
}

/// A fault as a row of a table, with a last column of one's own.
fn row(fault: &Fault, last: String) -> [String; 4] {
    let (name, promise) = (fault.name.clone(), fault.promise.clone());
    [name, promise, fault.checker.to_string(), last]
}

/// Plants the faults, prints the table and counts.
fn plant_all(tree: &Tree, faults: &[Fault]) -> Verdict {
    let fates = match fates(tree, faults) {
        Ok(fates) => fates,
        Err(error) => {
            return Verdict::failed(format!("the copy of the tree cannot be written: {error}"))
        }
    };
    print_table(faults, &fates);
    let missed = fates
        .iter()
        .filter(|fate| matches!(fate, Fate::Missed(_)))
        .count();
    let caught = fates.len() - missed;
    Verdict::from_failures(
        missed,
        format!("{} faults, {caught} caught, {missed} not", faults.len()),
    )
}

/// The outcome of each fault, in their order; an error if a copy cannot be written. Each lane has its copy of
/// the tree and runs beside the others.
fn fates(tree: &Tree, faults: &[Fault]) -> io::Result<Vec<Fate>> {
    let fates_of = |lane: Lane| {
        let of_lane = faults.iter().filter(|fault| fault.checker.lane() == lane);
        let of_lane: Vec<_> = of_lane.collect();
        if of_lane.is_empty() {
            return Ok(BTreeMap::new());
        }
        let fates = fates_in_lane(&Bench::new(tree, lane), &of_lane)?;
        let names = of_lane.iter().map(|fault| fault.name.clone());
        io::Result::Ok(names.zip(fates).collect::<BTreeMap<_, _>>())
    };
    let lanes = thread::scope(|scope| {
        let lanes = Lane::ALL.map(|lane| scope.spawn(move || fates_of(lane)));
        lanes.map(|lane| lane.join().expect("a lane does not panic"))
    });
    let mut all = BTreeMap::new();
    for lane in lanes {
        all.extend(lane?);
    }
    let in_order = faults.iter().filter_map(|fault| all.remove(&fault.name));
    Ok(in_order.collect())
}

/// The outcomes of the faults of one lane, one by one.
fn fates_in_lane(bench: &Bench<'_>, faults: &[&Fault]) -> io::Result<Vec<Fate>> {
    bench.restore()?;
    let unsound = unsound_checkers(bench, faults);
    let mut fates = Vec::new();
    for fault in faults {
        let fate = match unsound.get(&fault.checker) {
            Some(why) => Fate::Missed(format!("its checker does not pass without it: {why}")),
            None => plant_one(bench, fault)?,
        };
        println!("fault {} ... {}", fault.name, fate.text());
        fates.push(fate);
    }
    Ok(fates)
}

/// Runs each checker once on the unharmed copy; gives those that do not pass, with the reason.
fn unsound_checkers<'a>(bench: &Bench<'_>, faults: &[&'a Fault]) -> BTreeMap<&'a Checker, String> {
    let mut unsound = BTreeMap::new();
    for (checker, limit) in sound_limits(faults) {
        match pass_without_faults(bench, checker, limit) {
            Ok(time) => println!("checker `{checker}` ... passes without faults, {time:.1} s"),
            Err(why) => {
                println!("checker `{checker}` ... DOES NOT PASS without faults: {why}");
                unsound.insert(checker, why);
            }
        }
    }
    unsound
}

/// Runs a checker on the unharmed copy; gives its seconds, or why it does not pass.
fn pass_without_faults(
    bench: &Bench<'_>,
    checker: &Checker,
    limit: Duration,
) -> Result<f64, String> {
    let label = format!("without-faults-{checker}");
    let Run { checked, time } = checker.run(&bench.copy, &label, limit);
    let time = time.as_secs_f64();
    let why = match checked {
        Checked::Passed => return Ok(time),
        Checked::Void(why) => return Err(why),
        Checked::Failed(test) => format!("failed in {time:.1} s: {test}"),
        Checked::Hung(test) => format!("took more than {time:.1} s, half of the limit: {test}"),
    };
    bench.print_log(&label);
    Err(why)
}

/// Each checker once, with half of the shortest limit of its faults: were the checker nearly as slow as the
/// limit, a busy machine would look like a hang.
fn sound_limits<'a>(faults: &[&'a Fault]) -> BTreeMap<&'a Checker, Duration> {
    let mut limits = BTreeMap::new();
    for fault in faults {
        let half = fault.limit / 2;
        let limit = limits.entry(&fault.checker).or_insert(half);
        *limit = half.min(*limit);
    }
    limits
}

/// Plants one fault and runs its checker.
fn plant_one(bench: &Bench<'_>, fault: &Fault) -> io::Result<Fate> {
    bench.restore()?;
    if let Err(why) = bench.plant(fault) {
        return Ok(Fate::Missed(why));
    }
    let Run { checked, time } = fault.checker.run(&bench.copy, &fault.name, fault.limit);
    let time = time.as_secs_f64();
    Ok(match checked {
        Checked::Passed => Fate::Missed(format!("NOT CAUGHT: the checker passed in {time:.1} s")),
        Checked::Failed(test) => Fate::Caught(format!("failed, {time:.1} s, {test}")),
        Checked::Hung(test) => Fate::Caught(format!("hung, {time:.1} s, {test}")),
        Checked::Void(why) => Fate::Missed(why),
    })
}

/// Prints what came of each fault.
fn print_table(faults: &[Fault], fates: &[Fate]) {
    let both = faults.iter().zip(fates);
    let rows = both.map(|(fault, fate)| row(fault, fate.text()));
    table::print(["fault", "promise", "caught by", "how"], rows);
}

impl Fate {
    /// As the table shows it.
    fn text(&self) -> String {
        match self {
            Fate::Caught(how) => how.clone(),
            Fate::Missed(why) => format!("FAILED: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fault with this name, checker and limit.
    fn fault(name: &str, checker: &str, seconds: u64) -> Fault {
        let entry = format!(
            "story = 'x'\npromise = 'L1'\ncaught-by = '{checker}'\nseconds = {seconds}\n\
             find = 'x'\nput = 'y'\n"
        );
        let entry = toml::Value::Table(entry.parse().unwrap());
        Fault::read(name, entry, "crates/paceline/src").unwrap()
    }

    #[test]
    fn names_select_and_an_unknown_one_is_told() {
        let faults = || vec![fault("a", "tidy", 60), fault("b", "tidy", 60)];
        assert_eq!(select(faults(), &[]).unwrap().len(), 2);
        assert_eq!(select(faults(), &["b".to_owned()]).unwrap()[0].name, "b");
        assert!(select(faults(), &["c".to_owned()]).is_err());
    }

    #[test]
    fn a_checker_must_pass_in_half_of_its_shortest_limit() {
        let faults = [
            fault("a", "unit x", 60),
            fault("b", "unit x", 20),
            fault("c", "unit y", 60),
        ];
        let faults: Vec<_> = faults.iter().collect();
        let limits: Vec<_> = sound_limits(&faults).into_values().collect();
        assert_eq!(limits, [Duration::from_secs(10), Duration::from_secs(30)]);
    }
}
