//! Events without a socket, in one pool: a queue of orders, a semaphore of parcels, and
//! signals.
//!
//! ```text
//! cargo run --release --example sources -- --orders 1000000
//! cargo run --release --example sources -- --stay     # then: kill -USR1 PID for the counts,
//! Ctrl-C to end
//! ```
//!
//! Two shops send orders into a bounded queue. The handler of an order releases a parcel; the
//! handler of a parcel delivers it. SIGUSR1 is an event, too, and so is the SIGTERM that ends it
//! all.

use std::{
    env, io, process,
    process::ExitCode,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc, Arc,
    },
    thread,
    time::Duration,
};

use paceline::{Pool, Sender, Signal, TaskContext};

const HELP: &str = "\
A queue, a semaphore and signals as events of one Leader/Followers pool.

usage: sources [--orders N] [--threads N] [--stay]

  --orders N   how many orders two shops send (default 100000)
  --threads N  how many threads take turns (default 3)
  --stay       wait for a signal when all is delivered, instead of ending
  --help       this text

SIGUSR1 prints the counts; SIGINT and SIGTERM (Ctrl-C) end it gracefully.";

#[derive(Default)]
struct Counts {
    orders: AtomicU64,
    parcels: AtomicU64,
    refused: AtomicU64,
}

fn main() -> ExitCode {
    let result = match Options::parse(env::args().skip(1)) {
        Ok(Some(options)) => work(&options),
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            eprintln!("sources: {mistake}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sources: {error}");
            ExitCode::FAILURE
        }
    }
}

fn work(options: &Options) -> io::Result<()> {
    let pool = Pool::builder().threads(options.threads).build()?;
    let (counts, (end, ended)) = (Arc::new(Counts::default()), mpsc::channel());

    // Each parcel is one unit: several threads deliver at once.
    let (counted, all, told) = (Arc::clone(&counts), options.orders, end.clone());
    let stay = options.stay;
    let parcels = pool
        .sources()
        .semaphore_concurrent(0, move |(), _: &mut TaskContext<'_>| {
            let delivered = counted.parcels.fetch_add(1, Ordering::Relaxed) + 1;
            if delivered == all && !stay {
                let _ = told.send("all is delivered");
            }
        })?;

    // Orders are handled one after the other.
    let counted = Arc::clone(&counts);
    let orders = pool
        .sources()
        .queue(1024, move |_order: u64, _: &mut TaskContext<'_>| {
            counted.orders.fetch_add(1, Ordering::Relaxed);
            // Fails only if the pool ends, and then it is in the report.
            let _ = parcels.release();
        })?;

    let counted = Arc::clone(&counts);
    let signals = [Signal::USR1, Signal::INT, Signal::TERM];
    pool.sources().signals(
        signals,
        move |signal: Signal, _: &mut TaskContext<'_>| match signal {
            Signal::USR1 => print(&counted),
            _ => drop(end.send("a signal came")),
        },
    )?;

    println!("running as process {}", process::id());
    let shops: Vec<_> = (0..2)
        .map(|shop| {
            let (orders, counts) = (orders.clone(), Arc::clone(&counts));
            let share = options.orders / 2 + (options.orders % 2) * shop;
            thread::spawn(move || (0..share).for_each(|order| insist(&orders, order, &counts)))
        })
        .collect();
    drop(orders);
    let why = match options.orders {
        0 if !stay => "there is nothing to do",
        _ => ended.recv().unwrap_or("nobody is left"),
    };
    let report = pool.shutdown(Duration::from_secs(5));
    shops.into_iter().for_each(|shop| drop(shop.join()));
    print(&counts);
    println!("{why}: {report}");
    Ok(())
}

/// Sends an order as soon as there is room for it, unless the queue is closed.
fn insist(orders: &Sender<u64>, order: u64, counts: &Counts) {
    while let Err(rejected) = orders.send(order) {
        if rejected.error.kind() == io::ErrorKind::BrokenPipe {
            return;
        }
        counts.refused.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_micros(50));
    }
}

fn print(counts: &Counts) {
    println!(
        "{} orders, {} parcels (the queue was full {} times)",
        counts.orders.load(Ordering::Relaxed),
        counts.parcels.load(Ordering::Relaxed),
        counts.refused.load(Ordering::Relaxed),
    );
}

struct Options {
    orders: u64,
    threads: usize,
    stay: bool,
}

impl Options {
    /// `None`: help is wanted.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            orders: 100_000,
            threads: 3,
            stay: false,
        };
        while let Some(word) = words.next() {
            let mut value = || {
                let text = words.next().ok_or(format!("{word} needs a value"))?;
                let number: Option<u32> = text.parse().ok();
                number.ok_or(format!("{word} {text}: not a number"))
            };
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--orders" => options.orders = value()?.into(),
                "--threads" => options.threads = value()?.max(1) as usize,
                "--stay" => options.stay = true,
                other => return Err(format!("unknown option {other}")),
            }
        }
        Ok(Some(options))
    }
}
