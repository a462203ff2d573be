//! A leader for each source: a post office with three counters and five clerks.
//!
//! ```text
//! cargo run --release --example per_source
//! ```
//!
//! Each counter has a queue of its own kind, and none of them can be waited for together with
//! another: letters arrive through a channel of std, parcels through a pipe as lines of text,
//! telegrams through a mailbox with a lock. One clerk waits at each counter (its leader). When a
//! customer arrives, the clerk waves a free colleague (a follower) to the counter and serves the
//! customer in the back (processing). If no colleague is free, the next one that is moves there.
//! With three clerks for three counters there is no colleague to wave over, so that is refused.

use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    sync::{mpsc, Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use paceline::{Arrived, BlockingSource, Interrupter, SourcePool};

/// Parcels: lines of text from a pipe. Its wait is bounded by a time-out of the socket.
struct Pipe(BufReader<UnixStream>);

impl BlockingSource for Pipe {
    type Event = String;

    fn wait(&mut self, until: Option<Instant>) -> io::Result<Arrived<String>> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map(|left| left.max(Duration::from_millis(1)));
        self.0.get_ref().set_read_timeout(left)?;
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => Ok(Arrived::Over),
            Ok(_) => Ok(Arrived::Event(line.trim_end().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Arrived::Nothing),
            Err(error) => Err(error),
        }
    }
}

/// Telegrams: a lock and a bell. Its wait can be interrupted, so it may last for ever.
#[derive(Clone, Default)]
struct Mailbox(Arc<(Mutex<Inside>, Condvar)>);

#[derive(Default)]
struct Inside {
    telegrams: Vec<String>,
    is_closed: bool,
    interrupted: bool,
}

impl Mailbox {
    fn change(&self, change: impl FnOnce(&mut Inside)) {
        let mut inside = self.0 .0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut inside);
        self.0 .1.notify_one();
    }
}

impl BlockingSource for Mailbox {
    type Event = String;

    fn wait(&mut self, until: Option<Instant>) -> io::Result<Arrived<String>> {
        let (lock, bell) = &*self.0;
        let mut inside = lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(telegram) = inside.telegrams.pop() {
                return Ok(Arrived::Event(telegram));
            }
            if inside.is_closed {
                return Ok(Arrived::Over);
            }
            if inside.interrupted {
                return Ok(Arrived::Nothing);
            }
            inside = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => bell.wait(inside).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return Ok(Arrived::Nothing),
                Some(left) => {
                    let woken = bell.wait_timeout(inside, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn interrupter(&self) -> Option<Interrupter> {
        let mailbox = self.clone();
        Some(Box::new(move || {
            mailbox.change(|inside| inside.interrupted = true);
        }))
    }
}

/// Serves a customer, which takes a while.
fn serve(what: &str) {
    let clerk = thread::current();
    println!("{} serves {what}", clerk.name().unwrap_or("a guest"));
    thread::sleep(Duration::from_millis(2));
}

fn main() -> io::Result<()> {
    let (letters, letter_counter) = mpsc::channel::<u32>();
    let (mut parcels, parcel_counter) = UnixStream::pair()?;
    let telegrams = Mailbox::default();

    let too_few = SourcePool::builder()
        .threads(1)
        .source("telegrams", Mailbox::default(), |text| serve(&text))
        .build();
    if let Err(error) = too_few {
        println!("one clerk for one counter is refused: {error}");
    }

    let pool = SourcePool::builder()
        .threads(5)
        .source("letters", letter_counter, |number| {
            serve(&format!("letter {number}"));
        })
        .source("parcels", Pipe(BufReader::new(parcel_counter)), |line| {
            serve(&line);
        })
        .source("telegrams", telegrams.clone(), |text| serve(&text))
        .build()?;

    for number in 0..10 {
        letters.send(number).map_err(io::Error::other)?;
        writeln!(parcels, "parcel {number}")?;
        telegrams.change(|inside| inside.telegrams.push(format!("telegram {number}")));
        thread::sleep(Duration::from_millis(1));
    }

    // When the counters close, and everyone is served, the clerks go home.
    drop((letters, parcels));
    telegrams.change(|inside| inside.is_closed = true);
    pool.join()?;
    let report = pool.shutdown(Duration::from_secs(5));
    let told = pool.snapshot();
    println!(
        "{} customers; {} times a colleague was asleep and was waved over, otherwise somebody came by; all in order: {}",
        told.events,
        told.promotions,
        report.is_clean()
    );
    Ok(())
}
