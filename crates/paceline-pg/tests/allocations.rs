//! How much memory a query costs in a relay: none. The allocator of this program counts.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering},
};

use paceline_pg::protocol::{
    ClientHalf, Mode, Output, Relay, RelaySettings, Release, ServerHalf, Values,
};
use paceline_pg_wire::{backend, frontend as f, TransactionStatus};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static COUNTED: Counted = Counted;

/// The system's allocator, counted.
struct Counted;

// SAFETY: every call is passed on to the system's allocator, which keeps the promises of the trait.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

const ROUNDS: usize = 1000;

/// One exchange: what the client sends, and what the server replies.
struct Exchange {
    requests: Vec<u8>,
    replies: Vec<u8>,
}

impl Exchange {
    fn simple() -> Self {
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        f::query(&mut requests, b"SELECT a FROM t WHERE b = 1");
        Self::rows(&mut replies);
        Self { requests, replies }
    }

    fn prepared() -> Self {
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        f::bind(&mut requests, b"", b"mine", &[Some(b"1")]);
        f::describe(&mut requests, f::Target::Portal(b""));
        f::execute(&mut requests, b"", 0);
        f::sync(&mut requests);
        backend::bind_complete(&mut replies);
        backend::no_data(&mut replies);
        Self::rows(&mut replies);
        Self { requests, replies }
    }

    fn parse() -> Self {
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        f::parse(&mut requests, b"mine", b"SELECT $1", &[]);
        f::sync(&mut requests);
        backend::parse_complete(&mut replies);
        backend::ready_for_query(&mut replies, TransactionStatus::Idle);
        Self { requests, replies }
    }

    fn rows(replies: &mut Vec<u8>) {
        (0..10).for_each(|_| backend::row(replies, [Some(&b"1"[..])]));
        backend::command_complete(replies, b"SELECT 10");
        backend::ready_for_query(replies, TransactionStatus::Idle);
    }

    /// Runs the exchange, with buffers that are kept.
    fn run(&self, relay: &mut Relay<'_>, to_server: &mut Vec<u8>, to_client: &mut Vec<u8>) {
        to_server.clear();
        to_client.clear();
        relay.begin(to_server);
        let mut out = Output {
            to_server,
            to_client,
        };
        let taken = relay.from_client(&self.requests, &mut out);
        assert!(taken.is_ok_and(|taken| taken.consumed == self.requests.len()));
        let given = relay.from_server(&self.replies, &mut out);
        assert!(given.is_ok_and(|given| given.release == Release::Allowed));
    }
}

/// A pooler passes tens of thousands of queries a second on: its buffers are reused.
#[test]
fn a_query_allocates_nothing() {
    let settings = RelaySettings::new(Mode::Transaction);
    let mut client = ClientHalf::new(Values::new(), true);
    let mut server = ServerHalf::new(Values::new());
    let mut relay = Relay {
        client: &mut client,
        server: &mut server,
        settings: &settings,
    };
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    Exchange::parse().run(&mut relay, &mut to_server, &mut to_client);
    for exchange in [Exchange::simple(), Exchange::prepared()] {
        exchange.run(&mut relay, &mut to_server, &mut to_client);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..ROUNDS {
            exchange.run(&mut relay, &mut to_server, &mut to_client);
        }
        let count = ALLOCATIONS.load(Ordering::Relaxed) - before;
        // The test harness has a thread of its own, which may allocate meanwhile.
        assert!(
            count < ROUNDS as u64 / 10,
            "{count} allocations in {ROUNDS} exchanges"
        );
    }
}

/// Thousands of idle clients are the reason for a pooler.
#[test]
fn an_idle_client_is_small() {
    assert!(
        size_of::<ClientHalf>() <= 96,
        "{} bytes",
        size_of::<ClientHalf>()
    );
    assert!(
        size_of::<ServerHalf>() <= 512,
        "{} bytes",
        size_of::<ServerHalf>()
    );
}
