//! The Leader/Followers pattern: a pool of threads that take turns at the front of one handle set.
//!
//! ```text
//!            events                                              followers, asleep
//!   o o o o o o o o o                leader                      .---.---.---.---.
//!   | | | | | | | | |             waits, claims  <-- promoted -- | T | T | T | T |
//!   +---------------+   one event      |                         '---'---'---'---'
//!   |  handle set   | ---------------> T                                 ^
//!   +---------------+                  | gives the lead away,            | rejoins: leads
//!           ^                          | then                            | or follows
//!           |                          v                                 |
//!           +------ releases ---- processing ----------------------------+
//!                                 runs the handler: reads, computes, blocks, writes
//! ```
//!
//! The thread that detects an event is the one that handles it: no queue, no hand-off, no
//! allocation per request. It gives the lead away *before* it handles it, so the next event finds a
//! leader even if this handler blocks. Handlers are plain synchronous code; a handful of threads
//! serves thousands of connections.
//!
//! # A server
//!
//! ```no_run
//! use std::{io, net::TcpStream};
//! use paceline::{Context, Next, Pool};
//!
//! fn main() -> io::Result<()> {
//!     let pool = Pool::new()?;
//!     pool.listen("127.0.0.1:7000", |_, _| Some(|cx: &mut Context<'_, TcpStream>| {
//!         let mut buf = [0; 4096];
//!         let n = cx.read(&mut buf)?;
//!         cx.write_all(&buf[..n])?;
//!         Ok(if n == 0 { Next::Close } else { Next::Continue })
//!     }))?;
//!     pool.join()
//! }
//! ```
//!
//! Where to go on: [`Pool`] has what a server does (listen, connect, post, end), [`Builder`] how it
//! is set up, [`EventHandler`] and [`Context`] what a handler is and can do, [`Next`] what it
//! answers; [`bound::Mux`] is the client's side. The user's guide is the module [`guide`]:
//! protocols, kept output, errors, blocking, pushing, ending, testing.
//!
//! # What the types forbid
//!
//! The roles of a thread are types (see [`turn`]), so the pattern's classical mistakes do not
//! compile.
//!
//! Processing before promoting: only a [`turn::Processing`] can run a handler.
//!
//! ```compile_fail,E0599
//! # use paceline::turn::Claimed;
//! fn process_then_promote(claimed: Claimed<'_>) {
//!     claimed.run(); // no method named `run` found for struct `Claimed`
//! }
//! ```
//!
//! Waiting without the lead: only a [`turn::Leader`] can wait.
//!
//! ```compile_fail,E0599
//! # use paceline::turn::Follower;
//! fn wait_without_the_lead(follower: Follower<'_>) {
//!     let _ = follower.wait(None); // no method named `wait` found for struct `Follower`
//! }
//! ```
//!
//! Waiting on after the lead was given away, or leading twice: a role is used up by its transition.
//!
//! ```compile_fail,E0382
//! # use paceline::turn::Leader;
//! fn wait_twice(leader: Leader<'_>) {
//!     let _ = leader.wait(None);
//!     let _ = leader.wait(None); // use of moved value: `leader`
//! }
//! ```
//!
//! Copying the lead:
//!
//! ```compile_fail,E0599
//! # use paceline::turn::Leader;
//! fn two_leaders<'p>(leader: Leader<'p>) -> (Leader<'p>, Leader<'p>) {
//!     (leader.clone(), leader) // no method named `clone` found for struct `Leader`
//! }
//! ```
//!
//! Sending a role to another thread: it belongs to the thread that entered.
//!
//! ```compile_fail,E0277
//! # use paceline::turn::Leader;
//! fn lead_elsewhere(leader: Leader<'static>) {
//!     std::thread::spawn(move || leader.wait(None)); // `*const ()` cannot be sent between threads
//! }
//! ```
//!
//! Keeping a role beyond its pool:
//!
//! ```compile_fail,E0597
//! # use paceline::Pool;
//! let follower = {
//!     let pool = Pool::new().unwrap();
//!     pool.enter().unwrap() // `pool` does not live long enough
//! };
//! # drop(follower);
//! ```
//!
//! # The rooms, in reading order
//!
//! | room | what it holds | knows nothing of |
//! | --- | --- | --- |
//! | [`turn`] | start here: the roles, and the loop of a thread | |
//! | `pool` | the pool, its threads, listeners, its end | |
//! | `levels` | several pools, and handles that move between them | |
//! | `sets` | several handle sets, and threads that serve them all | |
//! | `promotion` | how a thread becomes leader | descriptors |
//! | `handle_set` | where a leader waits: epoll, `poll`, io_uring, [`simulated`] | threads |
//! | `dispatch` | how an event reaches a handler | the pool |
//! | `timer` | points in time, as events of the same turn | handles |
//! | `sources` | events that no socket reports: queues, semaphores, signals | the pool |
//! | [`bound`] | many threads share one connection, each awaits its own reply | the pool |
//! | [`observe`] | what can be seen from outside | |
//! | `sync` | atomics, locks, the parker, in three forms | |

#![warn(clippy::match_bool)]

pub mod turn;

mod pool;

mod levels;

mod sets;

mod promotion;

mod handle_set;

mod dispatch;

mod timer;

mod idle;

mod hub;

mod sources;

pub mod bound;

pub mod observe;

mod errors;

mod key;

mod unwind;

mod sync;

#[doc = include_str!("guide.md")]
pub mod guide {}

#[doc = include_str!("glossary.md")]
pub mod glossary {}

pub use dispatch::{
    scratch, Adoption, Closed, ClosedHandle, ConcurrentContext, ConcurrentHandler,
    ConcurrentItemHandler, Context, Errand, EventHandler, Group, GroupHandler, Handle, HandleId,
    HandlerKind, InHandler, Interest, ItemHandler, ListenerAddress, Members, Move, Next,
    OutputLimit, Overdue, Pace, Panics, Piece, QueueOrder, Recall, Rejected, Returned, Scratch,
    Serve, TaskContext, TickContext,
};
pub use handle_set::{defer_accept, simulated, Descriptor, Source};
pub use levels::{Level, Levels, LevelsBuilder, LevelsReport};
pub use pool::{
    Builder, Entrance, Inspect, Listener, ListenerBuilder, ListenerSocket, Observation, Pool,
    PoolClock, SetKind, ShutdownReport, Sources, Threads, Timer, TimerGuard, Unfinished, WeakPool,
};
pub use promotion::{Order, Wake};
pub use sets::{Leaders, Sets, SetsBuilder, Spread};
pub use sources::{
    Arrived, BlockingSource, Interrupter, RingConsumer, RingProducer, Semaphore, Sender, Signal,
    SourcePool, SourcePoolBuilder, SourceReport, SourceSnapshot,
};
pub use turn::Left;
