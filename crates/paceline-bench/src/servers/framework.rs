//! `paceline-server`: lines by its line codec, and frames over TLS. All limits are in force, at their defaults but for
//! those that a client of this program meets: it connects more often, begins all handshakes at once and is silent while
//! other servers are measured.

use std::{io, net::TcpListener, time::Duration};

use paceline_server::{
    codec::{line, Codec, Decoded, Malformed, Message},
    tls::Tls,
    Engine, HalfSync, Limits, Listen, Next, Peer, Server, ServerBuilder, Session,
};

use super::{keep, Setting};
use crate::{
    service::{perform_all, Task, REQUEST},
    tls,
};

/// The longest line.
const LONGEST: usize = 8192;

/// More connections than any work has.
const CONNECTIONS: usize = 100_000;

/// Longer than any client is silent.
const IDLE: Duration = Duration::from_secs(3600);

/// Leader/Followers.
pub(super) fn lines(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve_lines(listener, setting, Engine::LeaderFollowers, limits())
}

/// Half-sync/half-async, with the same sessions.
pub(super) fn lines_half_sync(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    // A queue with room for every connection of any work: none is refused.
    let workers = HalfSync::default()
        .workers(setting.threads)
        .capacity(CONNECTIONS);
    let engine = Engine::HalfSyncHalfAsync(workers);
    serve_lines(listener, setting, engine, limits())
}

/// With clients that may be as slow as they like.
pub(super) fn lines_patient(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    let limits = limits().least_rate(None);
    serve_lines(listener, setting, Engine::LeaderFollowers, limits)
}

/// Frames over TLS.
pub(super) fn tls(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    let steps = setting.steps;
    let listen = Listen::tcp_socket(listener)
        .tls(&Tls::from_config(tls::server()?))
        .limits(limits());
    start(
        setting,
        Server::builder().listener(listen, Frames, move |_| FrameEcho { steps }),
    )
}

fn serve_lines(
    listener: TcpListener,
    setting: &Setting,
    engine: Engine,
    limits: Limits,
) -> io::Result<()> {
    let (steps, announced) = (setting.steps, setting.announced);
    let listen = Listen::tcp_socket(listener).limits(limits);
    let server = Server::builder().engine(engine);
    start(
        setting,
        server.listener(listen, line(LONGEST), move |_| LineEcho {
            steps,
            announced,
        }),
    )
}

fn limits() -> Limits {
    Limits::default()
        .connections(CONNECTIONS)
        .handshakes(CONNECTIONS)
        .idle(IDLE)
}

fn start(setting: &Setting, server: ServerBuilder) -> io::Result<()> {
    keep(server.threads(setting.threads).start()?)
}

/// Sends each line back.
struct LineEcho {
    steps: u32,
    announced: bool,
}

impl Session for LineEcho {
    fn handle(&mut self, line: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
        let task = Task::of_line(&line);
        if self.announced && task.blocks() {
            cx.blocking(|| task.perform(self.steps));
        } else {
            task.perform(self.steps);
        }
        cx.reply(line)?;
        Ok(Next::Continue)
    }
}

/// All whole frames that have come are an item.
#[derive(Clone)]
struct Frames;

impl Codec for Frames {
    type Item<'b> = &'b [u8];

    fn decode<'b>(&mut self, input: &'b [u8], ended: bool) -> Result<Decoded<&'b [u8]>, Malformed> {
        let consumed = input.len() - input.len() % REQUEST;
        if consumed > 0 {
            let item = &input[..consumed];
            return Ok(Decoded::Item { item, consumed });
        }
        if ended && !input.is_empty() {
            return Err(Malformed::Truncated);
        }
        Ok(Decoded::Incomplete)
    }
}

/// Sends frames back.
struct FrameEcho {
    steps: u32,
}

impl Session<Frames> for FrameEcho {
    fn handle(&mut self, frames: &[u8], cx: &mut Peer<'_, Frames>) -> io::Result<Next> {
        perform_all(frames, self.steps);
        cx.write_all(frames)?;
        Ok(Next::Continue)
    }
}
