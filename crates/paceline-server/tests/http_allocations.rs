//! How much memory a request costs: none. The allocator of this program counts.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    io::{Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicU64, Ordering},
};

use paceline_server::{http::Router, Server};

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

const ROUNDS: u64 = 1000;

/// A request that finds its route, has a parameter, and is answered with a text: what it needs is
/// in buffers that the threads and the connection have already. The date changes once a second, so
/// there may be a few allocations, and not one for each request.
#[test]
fn a_request_allocates_nothing() {
    let router = Router::new(())
        .get("/", |(), _| "hello")
        .get("/user/{id}", |(), req| {
            req.param::<u64>("id").map(|_| "user ")
        });
    let server = Server::http("127.0.0.1:0", router)
        .threads(1)
        .start()
        .unwrap();
    let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: a\r\nuser-agent: test\r\naccept: */*\r\n\r\n\
        GET /user/7?a=b HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut answers = vec![0; 4096];
    client.write_all(request).unwrap();
    let mut length = 0;
    while !answers[..length].ends_with(b"user ") {
        length += client.read(&mut answers[length..]).unwrap();
    }
    let mut ask = || {
        client.write_all(request).unwrap();
        client.read_exact(&mut answers[..length]).unwrap();
    };
    (0..50).for_each(|_| ask());
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..ROUNDS).for_each(|_| ask());
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert!(
        allocations < ROUNDS / 10,
        "{allocations} allocations for {} requests",
        2 * ROUNDS
    );
}
