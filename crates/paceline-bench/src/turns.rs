//! `turns`: one thread that leads, handles and leads again, so many times, and asks itself. For counting
//! instructions: nothing else runs, and no clock is needed. With lines, it is `paceline-server` that handles them, or the
//! handler that it is measured by.

mod hello;
mod lines;

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
};

use paceline::{
    observe::{Observer, Role},
    turn::{Follower, Led, Waited},
    Context, EventHandler, Interest, Next, Pool,
};

use crate::service::REQUEST;

/// So many handles are ready at once.
const HANDLES: usize = 10;

/// Which handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Handler {
    /// Frames of 64 bytes, by a handler on the pool
    Frames,
    /// Lines, by a handler on the pool that splits them itself
    BareLines,
    /// Lines, by a session of paceline-server
    ServerLines,
    /// Requests of HTTP, by a route of paceline-server
    ServerHello,
}

/// The observers.
#[derive(Debug, clap::Args)]
pub(crate) struct Observed {
    /// With an observer that does nothing
    #[arg(long)]
    observed: bool,
    /// With one that came after the pool was built
    #[arg(long)]
    observed_later: bool,
    /// With a board, and histograms
    #[arg(long)]
    board: bool,
}

/// Runs `turns` turns, one after the other.
pub(crate) fn run(turns: u64, handler: Handler, by: &Observed) -> io::Result<()> {
    match handler {
        Handler::Frames => frames(turns, by),
        Handler::BareLines => lines::bare(turns),
        Handler::ServerLines => lines::by_server(turns),
        Handler::ServerHello => hello::by_server(turns),
    }
}

fn frames(turns: u64, by: &Observed) -> io::Result<()> {
    let builder = Pool::builder().threads(0).board(by.board);
    let pool = if by.observed {
        builder.observer(Nobody).build()?
    } else {
        builder.build()?
    };
    let _observation = by.observed_later.then(|| pool.observe(Nobody));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    for _ in 0..HANDLES {
        let mut client = TcpStream::connect(listener.local_addr()?)?;
        client.write_all(&[0; REQUEST])?;
        let buffer = [0; REQUEST];
        pool.register(
            listener.accept()?.0,
            Interest::READ,
            Asking { client, buffer },
        )?;
    }
    take_turns(&pool, turns)
}

fn take_turns(pool: &Pool, turns: u64) -> io::Result<()> {
    let mut follower = pool.enter()?;
    for _ in 0..turns {
        follower = turn(follower)?;
    }
    Ok(())
}

/// One turn, as the pool's own threads make it.
fn turn(follower: Follower<'_>) -> io::Result<Follower<'_>> {
    match follower.lead() {
        Led::Leader(leader) => match leader.wait(None)? {
            Waited::Claimed(claimed) => Ok(claimed.promote().run()),
            Waited::Nothing(follower) => Ok(follower),
        },
        Led::TimedOut | Led::Closing => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Replies, and asks anew as its own client.
struct Asking {
    client: TcpStream,
    buffer: [u8; REQUEST],
}

impl EventHandler<TcpStream> for Asking {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let count = cx.read(&mut self.buffer)?;
        cx.write_all(&self.buffer[..count])?;
        // One call each: what the standard library makes of more is not the pool's, and not always the same.
        let back = self.client.read(&mut self.buffer)?;
        let sent = self.client.write(&self.buffer)?;
        debug_assert_eq!((back, sent), (self.buffer.len(), self.buffer.len()));
        Ok(Next::Continue)
    }
}

/// An observer that does nothing.
struct Nobody;

impl Observer for Nobody {
    fn role_changed(&self, _: usize, _: Role) {}
}
