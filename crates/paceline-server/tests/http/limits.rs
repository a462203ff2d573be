//! Limits, and clients that are slow: the clock is the test's.

use std::{
    fs,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc, Mutex,
    },
    time::{Duration, Instant},
};

use paceline_server::{
    http::{Body, Content, Response, Router},
    Engine, HalfSync,
};

use crate::support::{noting, wait, Calls, Client, Site, PATIENCE};

const SECOND: Duration = Duration::from_secs(1);

fn get(target: &str, fields: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

/// The statuses of the answers to one input.
fn statuses(site: &Site, input: &str) -> Vec<u16> {
    site.client_with(input).statuses()
}

/// A head is read into memory: 16 KiB of it.
#[test]
fn head_too_long() {
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    let value = "b".repeat(20_000);
    assert_eq!(
        statuses(&site, &get("/", &format!("A: {value}\r\n"))),
        [431]
    );
    // The end of the head need not come.
    assert_eq!(
        statuses(&site, &format!("GET / HTTP/1.1\r\nA: {value}")),
        [431]
    );
    assert!(calls.all().is_empty());
    let text = site.server.open_metrics();
    assert!(text.contains(r#"limit="item_size"} 2"#), "{text}");
}

#[test]
fn target_too_long() {
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    let path = format!("/{}", "a".repeat(8192));
    assert_eq!(statuses(&site, &get(&path, "")), [414]);
    assert_eq!(statuses(&site, &format!("GET {path}{path}")), [414]);
    assert!(calls.all().is_empty());
}

#[test]
fn too_many_fields() {
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    assert_eq!(statuses(&site, &get("/", &"A: b\r\n".repeat(100))), [431]);
    let fine = format!("{}Connection: close\r\n", "A: b\r\n".repeat(98));
    assert_eq!(statuses(&site, &get("/", &fine)), [200]);
}

/// The length is known from the head: the client must not send what nobody takes.
#[test]
fn declared_too_long() {
    let calls = Calls::default();
    let site = Site::with(noting(&calls), |server| server.body_limit(1000));
    for expect in ["", "Expect: 100-continue\r\n"] {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{expect}Content-Length: 1001\r\n\r\n");
        assert_eq!(statuses(&site, &head), [413]);
    }
    assert!(calls.all().is_empty());
}

/// A chunked body says nothing of its length: it is counted.
#[test]
fn chunked_too_long() {
    let calls = Calls::default();
    let site = Site::with(noting(&calls), |server| server.body_limit(1000));
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = format!("1f4\r\n{}\r\n", "x".repeat(500));
    assert_eq!(
        statuses(&site, &format!("{head}{chunk}{chunk}1\r\nx\r\n")),
        [413]
    );
    let mut client = site.client_with(format!("{head}{chunk}{chunk}0\r\n\r\n"));
    assert_eq!(client.answer().unwrap().status, 200);
    assert_eq!(calls.all(), ["POST / 1000"]);
}

/// One byte of data costs 200 bytes of coding: a way to keep a server busy.
#[test]
fn tiny_chunks() {
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = format!("1;{}\r\nx\r\n", "e".repeat(200));
    assert_eq!(
        statuses(&site, &format!("{head}{}0\r\n\r\n", chunk.repeat(100))),
        [400]
    );
    assert!(calls.all().is_empty());
}

/// A head that never ends, however steadily it comes.
#[test]
fn slow_head() {
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    let mut stalled = site.client_with("GET / HTTP/1.1\r\nHo");
    let mut steady = site.client_with("GET / HTTP/1.1\r\nHost: a\r\n");
    site.settle(&stalled);
    for second in 0..29 {
        steady.send(format!("A: {}\r\n", "b".repeat(300)));
        site.settle(&steady);
        site.pass(SECOND);
        if second == 6 {
            assert_eq!(stalled.statuses(), [408]);
        }
    }
    assert!(!steady.peer.is_output_ended());
    site.pass(2 * SECOND);
    assert_eq!(steady.statuses(), [408]);
    assert!(calls.all().is_empty());
}

#[test]
fn slow_body() {
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    let mut client =
        site.client_with("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx");
    for _ in 0..4 {
        site.settle(&client);
        site.pass(SECOND);
        client.send("x");
        assert!(!client.peer.is_output_ended());
    }
    site.settle(&client);
    site.pass(2 * SECOND);
    assert_eq!(client.statuses(), [408]);
    assert!(calls.all().is_empty());
}

/// A time for the whole body broke uploads over slow lines elsewhere: only the rate counts.
#[test]
fn steady_upload() {
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    let length = 300 * 600;
    let mut client = site.client_with(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
    ));
    for _ in 0..600 {
        site.settle(&client);
        site.pass(SECOND);
        client.send(vec![b'x'; 300]);
    }
    assert_eq!(client.answer().unwrap().status, 200);
    assert_eq!(calls.all(), [format!("POST / {length}")]);
}

/// A client asks for much and takes little: the answer is made as it is taken.
#[test]
fn slow_read() {
    let parts = Arc::new(AtomicUsize::new(0));
    let router = Router::new(Arc::clone(&parts)).get("/", |parts, _| {
        let parts = Arc::clone(parts);
        Response::new(Content::pieces(move |part| {
            part.resize(64 * 1024, b'x');
            Ok(parts.fetch_add(1, Ordering::Relaxed) < 16)
        }))
    });
    let site = Site::new(router);
    let client = site.client_with(get("/", ""));
    site.settle(&client);
    let mut seconds = 0;
    while !client.peer.is_closed_by_pool() {
        assert!(
            seconds < 60,
            "a client that takes 10 bytes a second is kept"
        );
        assert_eq!(client.peer.wait_for(10).len(), 10);
        site.pass(SECOND);
        site.rest();
        seconds += 1;
    }
    assert!(seconds >= 5);
    assert!(
        parts.load(Ordering::Relaxed) <= 2,
        "it was made before it was taken"
    );
}

#[test]
fn silent_connection() {
    let site = Site::new(noting(&Calls::default()));
    let mut client = site.client();
    wait(|| site.server.connections() == 1);
    site.pass(9 * SECOND);
    site.rest();
    assert!(!client.peer.is_output_ended());
    site.pass(2 * SECOND);
    assert_eq!(client.rest(), b"");
    client.peer.wait_closed();
}

#[test]
fn idle_keepalive() {
    let site = Site::new(noting(&Calls::default()));
    let mut client = site.client_with(get("/", ""));
    assert_eq!(client.answer().unwrap().status, 200);
    site.pass(74 * SECOND);
    client.send(get("/", ""));
    assert_eq!(client.answer().unwrap().status, 200);
    site.pass(90 * SECOND);
    assert_eq!(client.rest(), b"");
    client.peer.wait_closed();
}

/// Slow clients hold no thread: a quick one waits for none of them.
#[test]
fn thousand_slow_one_quick() {
    let calls = Calls::default();
    let site = Site::with_threads(4, noting(&calls), |server| server);
    let slow: Vec<_> = (0..1000)
        .map(|number| match number % 2 {
            0 => site.client_with("GET / HTTP/1.1\r\nHost"),
            _ => site.client_with("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx"),
        })
        .collect();
    slow.iter()
        .for_each(|client| wait(|| client.peer.is_read_by_pool()));
    let mut quick = site.client_with(get("/quick", ""));
    assert_eq!(quick.answer().unwrap().status, 200);
    site.rest();
    assert_eq!(calls.all(), ["GET /quick 0"]);
    assert_eq!(site.server.connections(), 1001);
}

/// More requests than threads and places: the one too many is answered at once.
#[test]
fn overload_is_503() {
    let (release, gate) = mpsc::channel::<()>();
    let calls = Calls::default();
    let state = (calls.clone(), Mutex::new(gate));
    let router = Router::new(state).get("/", |(calls, gate), _| {
        calls.note("called");
        let _ = gate.lock().unwrap().recv();
        "ok"
    });
    let half_sync = HalfSync::default().workers(1).capacity(1);
    let site = Site::with(router, |server| {
        server.engine(Engine::HalfSyncHalfAsync(half_sync))
    });
    let mut first = site.client_with(get("/", ""));
    wait(|| !calls.all().is_empty());
    let mut others = [
        site.client_with(get("/", "")),
        site.client_with(get("/", "")),
    ];
    let start = Instant::now();
    while !others.iter_mut().any(Client::has_output) {
        assert!(start.elapsed() < PATIENCE, "no client is refused");
    }
    let is_second = others[1].has_output();
    others.rotate_left(usize::from(is_second));
    let answer = others[0].answer().unwrap();
    assert_eq!(
        (answer.status, answer.field("retry-after")),
        (503, Some("1"))
    );
    assert_eq!(answer.field("connection"), Some("close"));
    assert_eq!(others[0].rest(), b"");
    release.send(()).unwrap();
    assert_eq!(first.answer().unwrap().status, 200);
    release.send(()).unwrap();
    assert_eq!(others[1].answer().unwrap().status, 200);
}

/// Handlers that pull their body hold a thread each, so there are few of them.
#[test]
fn no_pull_permit() {
    let router = Router::new(())
        .post("/", |(), req| {
            req.bytes().map(|body| body.len().to_string())
        })
        .body(Body::Pull);
    let site = Site::with(router, |server| server.pulls(1));
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n";
    let mut first = site.client_with(format!("{head}01234"));
    site.settle(&first);
    let mut second = site.client_with(format!("{head}01234"));
    let answer = second.answer().unwrap();
    assert_eq!(
        (answer.status, answer.field("retry-after")),
        (503, Some("1"))
    );
    assert_eq!(second.rest(), b"");
    first.send("56789");
    assert_eq!(first.answer().unwrap().text(), "10");
    first.send(format!("{head}01234"));
    site.settle(&first);
    first.send("56789");
    assert_eq!(first.answer().unwrap().text(), "10");
}

/// A body is too long for memory, and the disk takes nothing.
#[test]
fn disk_full_while_spilling() {
    let calls = Calls::default();
    let folder = std::env::temp_dir().join(format!("paceline-http-spill-{}", std::process::id()));
    let site = Site::with(noting(&calls), |server| {
        server.body_memory(0).spill_folder(&folder)
    });
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    let body = "x".repeat(100_000);
    let mut client = site.client_with(format!("{head}{body}"));
    let answer = client.answer().unwrap();
    assert_eq!(
        (answer.status, answer.field("retry-after")),
        (503, Some("1"))
    );
    assert!(calls.all().is_empty());
    fs::create_dir(&folder).unwrap();
    let mut client = site.client_with(format!("{head}{body}"));
    assert_eq!(client.answer().unwrap().status, 200);
    assert_eq!(calls.all(), ["POST / 100000"]);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    fs::remove_dir(&folder).unwrap();
}

/// A handler panics with a body that is on the disk: nothing of it is left, neither a name nor a descriptor.
#[test]
fn a_panic_leaves_no_file() {
    let folder = std::env::temp_dir().join(format!("paceline-http-panic-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let router = Router::new(()).post("/", |(), req| -> Response {
        let length = req.bytes().map_or(0, |body| body.len());
        panic!("planned, with {length} bytes");
    });
    let site = Site::with(router, |server| server.body_memory(0).spill_folder(&folder));
    let body = "x".repeat(100_000);
    let length = body.len();
    let mut client = site.client_with(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
    ));
    assert_eq!(client.answer().unwrap().status, 500);
    site.rest();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    let left: Vec<_> = open.filter(|path| path.starts_with(&folder)).collect();
    assert!(left.is_empty(), "{left:?}");
    fs::remove_dir(&folder).unwrap();
}

/// A connection that is used for an hour ends behind an answer, and not within one.
#[test]
fn an_old_connection_ends() {
    let site = Site::new(noting(&Calls::default()));
    let mut client = site.client();
    for _ in 0..60 {
        client.send(get("/", ""));
        assert_eq!(client.answer().unwrap().field("connection"), None);
        site.pass(61 * SECOND);
    }
    site.rest();
    client.send(get("/", ""));
    assert_eq!(client.answer().unwrap().field("connection"), Some("close"));
    assert_eq!(client.rest(), b"");
}

/// A pool that keeps little output gets the parts of an answer in smaller pieces, in both engines.
#[test]
fn parts_fit_into_kept_output() {
    let router = || {
        Router::new(()).get("/", |(), _| {
            Response::new(Content::read(std::io::Cursor::new(vec![b'x'; 300_000])))
        })
    };
    let small = Site::with(router(), |server| {
        server.pool(|pool| pool.output_limit(20_000))
    });
    let half_sync = Site::with(router(), |server| {
        server.engine(Engine::HalfSyncHalfAsync(HalfSync::default().workers(1)))
    });
    for site in [small, half_sync] {
        let mut client = site.client_with(get("/", ""));
        assert_eq!(client.answer().unwrap().body.len(), 300_000);
    }
}

/// Chunks of one byte, sent at once: none of them may cost a turn of its own.
#[test]
fn honest_small_chunks_are_read() {
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    let chunks = "1\r\nx\r\n".repeat(30_000);
    let mut client = site.client_with(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
    ));
    assert_eq!(client.answer().unwrap().status, 200);
    assert_eq!(calls.all(), ["POST / 30000"]);
}
