//! Two processes and a ring in the memory that they share: the child measures, the parent adds up.
//!
//! ```text
//! cargo run --release --example ring -- --records 1000000
//! ```
//!
//! The parent starts itself once more, with one end of a Unix socket as the child's input. The
//! parent sends the ring over it at the beginning; then it is only a bell for a sleeping side, and
//! reports when the other process has ended.

use std::{
    env, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{Command, ExitCode, Stdio},
    sync::mpsc,
};

use paceline::{Closed, Context, EventHandler, Interest, Next, Pool, RingConsumer, RingProducer};

const HELP: &str = "\
A ring of records between two processes, as a source of a Leader/Followers pool.

usage: ring [--records N] [--capacity BYTES] [--fail-after N]

  --records N       how many records the child sends (default 100000)
  --capacity BYTES  how much the ring holds (default 65536)
  --fail-after N    the child dies after so many
  --help            this text";

fn main() -> ExitCode {
    let result = match Options::parse(env::args().skip(1)) {
        Ok(Some(options)) if options.is_child => child(&options),
        Ok(Some(options)) => parent(&options),
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            eprintln!("ring: {mistake}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ring: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes the ring, and sends numbers.
fn child(options: &Options) -> io::Result<()> {
    let parent = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut ring = RingProducer::create(parent, options.capacity)?;
    for number in 0..options.records {
        if options.fail_after == Some(number) {
            std::process::abort();
        }
        // It waits while the ring is full, and fails if the parent is gone.
        ring.send_until(&number.to_le_bytes(), None)?;
    }
    Ok(())
}

/// Adds up the records.
struct Adder {
    record: Vec<u8>,
    count: u64,
    sum: u64,
    tell: mpsc::Sender<(u64, u64)>,
}

impl EventHandler<RingConsumer> for Adder {
    fn ready(&mut self, cx: &mut Context<'_, RingConsumer>) -> io::Result<Next> {
        // Some at a time, then the others have their turn; "would block" means that nothing is
        // there now.
        for _ in 0..64 {
            if !cx.try_read(|ring| ring.receive(&mut self.record))? {
                return Ok(Next::Close);
            }
            let bytes = self.record.as_slice().try_into();
            let bytes = bytes.map_err(|_| io::Error::other("a record of another size"))?;
            self.count += 1;
            self.sum += u64::from_le_bytes(bytes);
        }
        Ok(Next::Continue)
    }

    fn closed(&mut self, why: Closed) {
        if let Closed::Failed(error) = why {
            eprintln!("ring: {error}");
        }
        let _ = self.tell.send((self.count, self.sum));
    }
}

fn parent(options: &Options) -> io::Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut child = Command::new(env::current_exe()?)
        .arg("--child")
        .args(env::args().skip(1))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()?;
    let pool = Pool::builder().threads(2).build()?;
    let (tell, told) = mpsc::channel();
    let adder = Adder {
        record: Vec::new(),
        count: 0,
        sum: 0,
        tell,
    };
    // The child is not trusted to make it larger than agreed.
    let ring = RingConsumer::open(ours, options.capacity)?;
    pool.register(ring, Interest::READ, adder)?;
    let (count, sum) = told.recv().map_err(io::Error::other)?;
    let status = child.wait()?;
    println!("{count} records, sum {sum}; the child: {status}");
    Ok(())
}

struct Options {
    records: u64,
    capacity: usize,
    fail_after: Option<u64>,
    is_child: bool,
}

impl Options {
    /// `None`: help is wanted.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            records: 100_000,
            capacity: 1 << 16,
            fail_after: None,
            is_child: false,
        };
        while let Some(word) = words.next() {
            let mut value = || {
                let text = words.next().ok_or(format!("{word} needs a value"))?;
                let number: Option<u32> = text.parse().ok();
                number.ok_or(format!("{word} {text}: not a number"))
            };
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--records" => options.records = value()?.into(),
                "--capacity" => options.capacity = value()? as usize,
                "--fail-after" => options.fail_after = Some(value()?.into()),
                "--child" => options.is_child = true,
                other => return Err(format!("unknown option {other}")),
            }
        }
        Ok(Some(options))
    }
}
