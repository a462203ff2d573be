//! Client and server at once: two pools with one thread each, which call each other, and call back.
//!
//! ```text
//! cargo run --release --example mutual -- --depth 12
//! ```
//!
//! ```text
//!   client --- 12 ---> left --- 11 ---> right --- 10 ---> left --- 9 ---> right ...
//!                        |                |                 |
//!                        '- waits         '- waits          '- the same thread: it serves while
//! it waits
//! ```
//!
//! Each pool answers "count down from n" by asking the other one to count down from n - 1. With
//! threads that only wait for their reply this would stand still at the second question: the one
//! thread of `left` waits for `right`, whose one thread waits for `left`. Here a thread that waits
//! serves its pool meanwhile ([`Mux::call_in`]).

use std::{
    env, io,
    net::{SocketAddr, TcpStream},
    process::ExitCode,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use paceline::{
    bound::{Header, Mux, Protocol, Whose},
    Context, EventHandler, Next, Pool, TaskContext,
};

const HELP: &str = "\
Two pools of one thread each call each other, as deep as is asked for, and neither is ever stuck.

usage: mutual [--depth N]

  --depth N  so many calls inside each other (default 12, most 200)
  --help     this text

A pool refuses the seventeenth wait inside another unless `Builder::nesting` says otherwise; this one says N.";

const DEADLINE: Duration = Duration::from_secs(10);

/// Request and reply alike: four bytes of id, one of number.
struct CountDown;

const FRAME: usize = 5;

impl Protocol for CountDown {
    type Request = u8;
    const ID_BITS: u32 = 32;

    fn encode(&self, from: &u8, id: u64, out: &mut Vec<u8>) -> io::Result<()> {
        out.extend(frame(id as u32, *from));
        Ok(())
    }

    fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
        Ok(bytes.first_chunk().map(|id| Header {
            whose: Whose::Call(u32::from_be_bytes(*id).into()),
            skip: 4,
            length: 1,
        }))
    }
}

fn frame(id: u32, number: u8) -> [u8; FRAME] {
    let [a, b, c, d] = id.to_be_bytes();
    [a, b, c, d, number]
}

/// The way to the other pool, as soon as there is one.
type Other = Arc<OnceLock<Mux<CountDown>>>;

/// One connection of a server.
struct Session {
    other: Other,
    input: Vec<u8>,
    /// Replies of calls that were waited for after the connection was given back.
    output: Arc<Mutex<Vec<u8>>>,
}

impl EventHandler<TcpStream> for Session {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let replies = std::mem::take(&mut *locked(&self.output));
        cx.write_all(&replies)?;
        let Some((&[a, b, c, d, from], _)) = self.input.split_first_chunk() else {
            let mut bytes = [0; 4096];
            let count = cx.read(&mut bytes)?;
            self.input.extend(&bytes[..count]);
            return Ok(if count == 0 { Next::Close } else { Next::Again });
        };
        self.input.drain(..FRAME);
        let id = u32::from_be_bytes([a, b, c, d]);
        let (other, output, handle) = (
            Arc::clone(&self.other),
            Arc::clone(&self.output),
            cx.handle(),
        );
        // The next question arrives on this very connection, so it is released before this one is
        // answered.
        cx.after_release(move |cx| {
            let count = count_down(cx, &other, from);
            locked(&output).extend(frame(id, count));
            // The connection may be over meanwhile.
            let _ = handle.notify();
        });
        Ok(Next::Again)
    }
}

fn locked(bytes: &Mutex<Vec<u8>>) -> std::sync::MutexGuard<'_, Vec<u8>> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many calls it took.
fn count_down(cx: &mut TaskContext<'_>, other: &Other, from: u8) -> u8 {
    let Some(other) = other.get().filter(|_| from > 0) else {
        return 0;
    };
    match other.call_in(cx, &(from - 1), DEADLINE) {
        Ok(reply) => reply[0] + 1,
        Err(error) => {
            eprintln!("{from} calls were not made: {error}");
            0
        }
    }
}

/// A pool of one thread, which serves.
fn serve(name: &str, depth: u8, other: &Other) -> io::Result<(Pool, SocketAddr)> {
    // Calls that wait inside each other lie on one stack.
    let builder = Pool::builder().threads(1).stack_size(16 << 20);
    let pool = builder.name(name).nesting(depth.into()).build()?;
    let other = Arc::clone(other);
    let listener = pool.listen("127.0.0.1:0", move |stream, _| {
        let _ = stream.set_nodelay(true);
        Some(Session {
            other: Arc::clone(&other),
            input: Vec::new(),
            output: Arc::default(),
        })
    })?;
    Ok((pool, listener.local_addr()))
}

fn run(depth: u8) -> io::Result<()> {
    let (to_right, to_left) = (Other::default(), Other::default());
    let (left, left_at) = serve("left", depth, &to_right)?;
    let (right, right_at) = serve("right", depth, &to_left)?;
    for (pool, other, at) in [(&left, &to_right, right_at), (&right, &to_left, left_at)] {
        let mux = Mux::connect(at, DEADLINE, CountDown)?;
        pool.attach(&mux)?;
        let _ = other.set(mux);
    }
    let client = Mux::connect(left_at, DEADLINE, CountDown)?;
    let count = client.call(&depth, DEADLINE)?[0];
    println!("{count} calls inside each other, by two pools with a thread each");
    for (name, pool) in [("left", &left), ("right", &right)] {
        println!("{name}: {}", pool.shutdown(DEADLINE));
    }
    Ok(())
}

fn main() -> ExitCode {
    let depth = match parse(env::args().skip(1)) {
        Ok(Some(depth)) => depth,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            eprintln!("mutual: {mistake}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match run(depth) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mutual: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How deep; `None`: help is wanted.
fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<u8>, String> {
    let mut depth = 12;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--help" => return Ok(None),
            "--depth" => {
                let value = words.next().ok_or("--depth wants a number")?;
                let number = value.parse().ok().filter(|it| (1..=200).contains(it));
                depth = number.ok_or(format!("--depth {value}: a number from 1 to 200"))?;
            }
            other => return Err(format!("{other} is not known")),
        }
    }
    Ok(Some(depth))
}
