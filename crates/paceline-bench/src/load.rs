//! The client: one thread that asks, checks every reply, and takes the time.
//!
//! ```text
//!  connect -> greet -> warm-up -> | /proc |  measured  | /proc | -> drain -> Load, a line of JSON
//!  all stand  all are     ^       |begins |            | ends  |    at most       |
//!             accepted    |                                         10 s          |
//!                         '------------ or slice by slice (slices.rs) ------------'
//! ```
//!
//! The client shares the machine with the server it measures, so it has to be cheap: epoll, edge-triggered, and per
//! request one read, one write, and one look at the clock; no allocation. What is asked when is decided by a pattern
//! ([`patterns`]), which knows nothing of sockets; the connections and the check of replies are the [`wire`]; the
//! loop that joins them is the [`driver`].
//!
//! `requests` are the replies of the measured time. Latencies are those of requests that started in it, also when
//! the reply came in the drain; of requests that were meant for it and found no connection free (of an open loop
//! that is too fast), what they had waited until its end. `errors` are those of the whole life of the client: wrong
//! replies, and connections lost.

mod asker;
mod clock;
mod connect;
mod driver;
mod measured;
mod mix;
mod patterns;
mod plan;
mod request;
pub(crate) mod sealed;
mod slices;
mod tally;
mod wire;

#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    io::{self, BufRead, Write},
};

use rustix::{
    fd::{AsFd, OwnedFd},
    process::{getrlimit, setrlimit, Resource, Rlimit},
};

pub(crate) use plan::{Pattern, Plan};
pub(crate) use slices::{Order, READY};

use asker::{Asker, Lines};
use clock::{nanos, seconds, Nanos};
use connect::{patience, take_in_little, Opener};
use driver::Driver;
use measured::Measured;
use mix::Choice;
use patterns::{Bursts, Churn, Closed, Greeting, Open, Pairs, SlowClients, SlowReaders, Trickle};
use request::Form;
use wire::Wire;

use crate::{record::Load, service::Task, tls, usage::Sample};

/// Seconds after the end within which the last replies come, or the client gives up.
const DRAIN: f64 = 10.0;

/// Descriptors beside the connections: the standard ones, epoll, the alarm, /proc.
const OTHER_DESCRIPTORS: usize = 16;

/// Does what the plan says.
///
/// # Errors
/// `InvalidInput` if the plan does not fit. Otherwise what failed: the server can't be reached, all connections were
/// lost, or replies are missing [`DRAIN`] seconds after the end.
pub(crate) fn run(plan: &Plan) -> io::Result<Load> {
    run_for(plan, io::stdin().lock(), io::stdout())
}

/// The same with `orders` from a conductor that reads the `answers`, if the plan says so.
fn run_for(plan: &Plan, orders: impl BufRead, answers: impl Write) -> io::Result<Load> {
    plan.check()?;
    let slow = plan.slow.unwrap_or(0);
    allow_descriptors(plan.connections + slow + OTHER_DESCRIPTORS)?;

    let choice = || Choice::new(&plan.mix);
    let closed = || Closed::new(plan.asking(), plan.pipeline, choice());
    let conductor = (orders, answers);
    match plan.pattern {
        Pattern::Closed => measure(plan, conductor, || Ok(closed())),
        Pattern::Open => {
            let rate = plan.rate.unwrap_or(1.0);
            let open = || Open::new(plan.asking(), plan.pipeline, rate, choice());
            measure(plan, conductor, || Ok(open()))
        }
        Pattern::Pairs => {
            let first = plan.first.unwrap_or(Task::Nothing);
            measure(plan, conductor, || Ok(Pairs::new(plan.asking(), first)))
        }
        Pattern::Bursts => {
            let idle = nanos(plan.idle.unwrap_or(0) as f64 / 1000.0);
            let size = plan.size.unwrap_or(1);
            let bursts = || Bursts::new(plan.asking(), size, idle, choice());
            measure(plan, conductor, || Ok(bursts()))
        }
        Pattern::Churn => measure(plan, conductor, || Ok(Churn::new(plan.asking(), choice()))),
        Pattern::SlowReader => {
            let sockets = || slow_sockets(plan, slow);
            measure(plan, conductor, || {
                Ok(SlowReaders::new(closed(), sockets()?))
            })
        }
        Pattern::SlowClient => {
            let sockets = Opener::lasting(plan.address, slow).open_all(slow)?;
            // The same clients in every slice.
            let trickle = RefCell::new(Trickle::over(sockets)?);
            measure(plan, conductor, || Ok(SlowClients::new(closed(), &trickle)))
        }
    }
}

/// Connects, lets an asker ask, or one for each slice, and writes down what came of it.
fn measure<A: Asker>(
    plan: &Plan,
    (orders, answers): (impl BufRead, impl Write),
    asker: impl Fn() -> io::Result<A>,
) -> io::Result<Load> {
    let mut driver = Driver::new(connect(plan)?, plan.pipeline)?;
    greet(&mut driver)?;
    let mut slice =
        |warm_up, length| measure_once(&mut driver, &mut asker()?, plan.pid, warm_up, length);
    if plan.in_slices {
        slices::conducted(orders, answers, slice)
    } else {
        Ok(slice(plan.warm_up, plan.seconds)?.load())
    }
}

/// The load runs, is measured after a while, and ends.
fn measure_once(
    driver: &mut Driver,
    asker: &mut impl Asker,
    server: Option<u32>,
    warm_up: f64,
    length: f64,
) -> io::Result<Measured> {
    driver.begin();
    asker.prepare();
    go_on(driver, asker, warm_up)?;

    let before = driver.wire.clock.pause(|| Sample::begin(server))?;
    let begin = driver.wire.now();
    driver.tally.begin(begin);
    let counted = driver.tally.replies();

    let end = go_on(driver, asker, length)?;
    let requests = driver.tally.replies() - counted;
    let after = driver.wire.clock.pause(|| Sample::end(server))?;

    drain(driver, asker, end)?;
    Ok(Measured {
        requests,
        seconds: seconds(end - begin),
        tally: driver.take_tally(),
        errors: driver.wire.errors(),
        usage: after.since(&before),
    })
}

/// The connections of the plan.
fn connect(plan: &Plan) -> io::Result<Wire> {
    let mut opener = match plan.pattern {
        Pattern::Churn => Opener::passing(plan.address),
        _ => Opener::lasting(plan.address, plan.connections),
    };
    let sockets = opener.open_all(plan.connections)?;
    let form = if plan.lines {
        Form::Lines
    } else {
        Form::Frames
    };
    let wire = Wire::over(sockets, opener, plan.pipeline)?.with_form(form);
    if plan.tls {
        wire.with_tls(tls::client()?)
    } else {
        Ok(wire)
    }
}

/// The connections of the slow readers.
fn slow_sockets(plan: &Plan, count: usize) -> io::Result<Vec<OwnedFd>> {
    let sockets = Opener::lasting(plan.address, count).open_all(count)?;
    for socket in &sockets {
        take_in_little(socket.as_fd())?;
    }
    Ok(sockets)
}

/// Every connection asks once, so that the server has accepted all.
fn greet(driver: &mut Driver) -> io::Result<()> {
    let mut greeting = Greeting::new(driver.wire.len());
    let patience = patience(driver.wire.len());
    let end = driver.wire.now() + nanos(patience);
    driver.drive(&mut greeting, end, |greeting, _| greeting.is_over())?;
    if greeting.is_over() {
        return Ok(());
    }
    let (left, all) = (greeting.left(), driver.wire.len());
    let text = format!(
        "{left} of {all} connections got no reply to their first request within {patience} s"
    );
    Err(io::Error::new(io::ErrorKind::TimedOut, text))
}

/// The load runs for so many seconds. Gives the time back at which it ended.
fn go_on(driver: &mut Driver, asker: &mut impl Asker, length: f64) -> io::Result<Nanos> {
    let end = driver.wire.now() + nanos(length);
    driver.drive(asker, end, |_, _| false)
}

/// Sends nothing more and reads the replies that are due; requests that wait at `end` are recorded.
fn drain(driver: &mut Driver, asker: &mut impl Asker, end: Nanos) -> io::Result<()> {
    driver.hush();
    while let Some((asked, in_focus)) = asker.turned_away(end) {
        driver.tally.waited(asked.start, end, in_focus);
    }
    driver.drive(asker, end + nanos(DRAIN), |_, wire| wire.outstanding() == 0)?;
    let missing = driver.wire.outstanding();
    if missing == 0 {
        return Ok(());
    }
    let text =
        format!("the server does not reply: {missing} replies are missing {DRAIN} s after the end");
    Err(io::Error::new(io::ErrorKind::TimedOut, text))
}

/// Raises the limit of open descriptors to its maximum.
///
/// # Errors
/// `InvalidInput` if that is fewer than needed.
fn allow_descriptors(needed: usize) -> io::Result<()> {
    let hard = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: hard,
        maximum: hard,
    };
    setrlimit(Resource::Nofile, raised)?;
    match hard {
        Some(hard) if hard < needed as u64 => {
            let text = format!(
                "{needed} descriptors are needed, and this process may open {hard} (ulimit -Hn)"
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
        _ => Ok(()),
    }
}
