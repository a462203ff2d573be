//! How much memory an idle connection takes. The server runs in this program, and the allocator of this program counts: what
//! it keeps in reserve, and the kernel's buffers, do not count.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        atomic::{AtomicIsize, Ordering},
        Mutex,
    },
};

use paceline_server::{
    codec::{line, Message},
    http::Router,
    Next, Peer, Server,
};

/// Bytes that are in use.
static BYTES: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static COUNTED: Counted = Counted;

/// The system's allocator, counted.
struct Counted;

// SAFETY: every call is passed on to the system's allocator, which keeps the promises of the trait.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// One test at a time counts.
static TURN: Mutex<()> = Mutex::new(());

/// Connections that are counted.
const COUNT: usize = 1000;

/// Connections that have each had this answer to this request.
fn open(count: usize, address: SocketAddr, request: &[u8], end: &[u8]) -> Vec<TcpStream> {
    let mut answer = [0; 512];
    let open = |_| {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request).unwrap();
        let mut length = 0;
        while !answer[..length].ends_with(end) {
            let count = client.read(&mut answer[length..]).unwrap();
            assert!(count > 0, "an answer comes");
            length += count;
        }
        client
    };
    (0..count).map(open).collect()
}

/// Bytes for each of many connections that have had an answer, and are idle.
fn bytes_each(what: &str, server: &Server, request: &[u8], end: &[u8]) -> isize {
    let address = server.local_addr().unwrap();
    // What the server and its threads set up once.
    let _first = open(64, address, request, end);
    let before = BYTES.load(Ordering::Relaxed);
    let idle = open(COUNT, address, request, end);
    let own = (idle.capacity() * size_of::<TcpStream>()) as isize;
    let each = (BYTES.load(Ordering::Relaxed) - before - own) / COUNT as isize;
    eprintln!("{each} bytes for each of {COUNT} idle connections of {what}");
    each
}

/// A connection of a line server took 1,044 bytes, more than a quarter of them for what few connections need: letters,
/// output that is kept, a reason to end.
#[test]
fn an_idle_session_is_small() {
    let _turn = TURN.lock().unwrap();
    fn echo(line: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
        cx.reply(line)?;
        Ok(Next::Continue)
    }
    let server = Server::builder().threads(2);
    let server = server
        .listen("127.0.0.1:0", line(80), |_| echo)
        .start()
        .unwrap();
    let each = bytes_each("a line server", &server, b"hello\n", b"\r\n");
    assert!(each <= 860, "{each} bytes");
}

/// An HTTP connection took 1,205 bytes.
#[test]
fn an_idle_http_connection_is_small() {
    let _turn = TURN.lock().unwrap();
    let router = Router::new(()).get("/", |(), _| "hello");
    let server = Server::http("127.0.0.1:0", router)
        .threads(2)
        .start()
        .unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: a\r\nuser-agent: test\r\n\r\n";
    let each = bytes_each("a web server", &server, request, b"hello");
    assert!(each <= 900, "{each} bytes");
}
