//! The life of a connection: keep-alive, expectations, failures of handlers, the drain.

use std::{
    sync::{mpsc, Mutex},
    thread,
    time::Duration,
};

use paceline::{simulated::Simulation, Pace, Pool, SetKind};
use paceline_server::{
    http::{Body, Content, Error, HttpServer, Push, Response, Result, Router},
    Inlet, Listen,
};

use crate::support::{noting, wait, Calls, Client, Site, THREADS};

const DRAIN: Duration = Duration::from_secs(30);

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// A client that has ended its output still reads: tools and proxies do that.
#[test]
fn half_closed_client_is_answered() {
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    let mut client = site.client_with(get("/a") + &get("/b"));
    client.peer.finish();
    assert_eq!(client.statuses(), [200, 200]);
}

/// The client waits for a word before it sends the body: it gets the final one.
#[test]
fn expect_refused_early() {
    let router = Router::new(()).put("/", |(), _| "ok").limit(10);
    let site = Site::new(router);
    for (path, status) in [("/", 413), ("/unknown", 404)] {
        let mut client = site.client_with(format!(
            "PUT {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n"
        ));
        assert_eq!(client.statuses(), [status]);
    }
}

/// A client that does not wait for the word gets one answer; one that waits gets two.
#[test]
fn expect_body_at_once() {
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    let head = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    let mut client = site.client_with(format!("{head}hello"));
    assert_eq!(client.answer().unwrap().status, 200);
    client.send(head);
    assert_eq!(client.answer().unwrap().status, 100);
    client.send("hello");
    assert_eq!(client.answer().unwrap().status, 200);
    assert_eq!(calls.all(), ["PUT / 5", "PUT / 5"]);
}

/// A body where none may be is read as the next answer.
#[test]
fn no_body_for_head_204_304() {
    let router = Router::new(())
        .get("/", |(), _| "hello")
        .get("/204", |(), _| Response::text("hello").status(204))
        .get("/304", |(), _| Response::text("hello").status(304))
        .get("/long", |(), _| Response::new(vec![b'x'; 100_000]))
        .get("/parts", |(), _| {
            Response::new(Content::pieces(|_| Ok(false)))
        });
    let site = Site::new(router);
    let mut client = site.client();
    for (method, path, status, length) in [
        ("HEAD", "/", 200, Some("5")),
        ("HEAD", "/long", 200, Some("100000")),
        ("HEAD", "/parts", 200, None),
        ("GET", "/204", 204, None),
        ("GET", "/304", 304, None),
        ("GET", "/", 200, Some("5")),
    ] {
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.answer_to(method).unwrap();
        assert_eq!(
            (answer.status, answer.field("content-length")),
            (status, length),
            "{path}"
        );
    }
}

/// The handler of the path does not exist: a short body is passed over, a long one ends it.
#[test]
fn unread_body() {
    let calls = Calls::default();
    let site = Site::new(noting(&calls).delete("/only", |_, _| "deleted"));
    let mut client =
        site.client_with("POST /only HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\n");
    let answer = client.answer().unwrap();
    assert_eq!((answer.status, answer.field("connection")), (405, None));
    client.send("x".repeat(99_999) + &get("/next"));
    assert_eq!(client.answer().unwrap().status, 200);
    let mut client =
        site.client_with("POST /only HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\nx");
    let answer = client.answer().unwrap();
    assert_eq!(
        (answer.status, answer.field("connection")),
        (405, Some("close"))
    );
    assert_eq!(client.rest(), b"");
    assert_eq!(calls.all(), ["GET /next 0"]);
}

/// A handler panics: its client gets an answer, and others are served on.
#[test]
fn panic_is_500() {
    let router = Router::new(())
        .get("/", |(), _| "ok")
        .get("/before", |(), _| -> Response { panic!("planned") })
        .get("/after", |(), _| {
            let mut is_first = true;
            Response::new(Content::pieces(move |part| {
                assert!(std::mem::take(&mut is_first), "planned");
                part.extend_from_slice(b"first");
                Ok(true)
            }))
        });
    let site = Site::new(router);
    assert_eq!(site.client_with(get("/before")).statuses(), [500]);
    let mut client = site.client_with(get("/after"));
    let all = String::from_utf8(client.rest()).unwrap();
    assert!(
        all.contains("first") && !all.ends_with("0\r\n\r\n"),
        "{all}"
    );
    assert_eq!(site.client_with(get("/")).answer().unwrap().status, 200);
}

/// A handler has promised more than it gives: the client must see that.
#[test]
fn short_body_from_handler() {
    let router = Router::new(()).get("/", |(), _| {
        Response::new(Content::read_exact(&b"hello"[..], 10))
    });
    let site = Site::new(router);
    let mut client = site.client_with(get("/") + &get("/"));
    assert_eq!(client.answer(), None);
    client.peer.wait_closed();
    wait(|| site.server.connections() == 0);
    let text = site.server.open_metrics();
    assert!(
        text.contains(r#"why="failed"} 1"#) || text.contains(r#"failed"} 1"#),
        "{text}"
    );
}

/// Connections between two requests end at once.
#[test]
fn drain_idle() {
    let site = Site::new(noting(&Calls::default()));
    let mut client = site.client_with(get("/"));
    assert_eq!(client.answer().unwrap().status, 200);
    let server = site.server.clone();
    let drain = thread::spawn(move || server.drain(DRAIN));
    assert_eq!(client.rest(), b"");
    assert!(drain.join().unwrap().is_clean());
}

/// A drain of five seconds cut a client that had its last answer and kept its side open. Such a
/// client is waited for, but less long than a drain takes, and it is nothing that is left undone.
#[test]
fn drain_outlasts_an_open_side() {
    let site = Site::new(noting(&Calls::default()));
    let mut client = site.client_with("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(client.answer().unwrap().status, 200);
    let server = site.server.clone();
    let drain = thread::spawn(move || server.drain(Duration::from_secs(5)));
    wait(|| !site.server.is_ready());
    site.pass(Duration::from_secs(3));
    // The server has ended, or every thread of it waits on.
    wait(|| drain.is_finished() || site.world.clock().asleep() >= THREADS);
    while !drain.is_finished() {
        site.world.clock().advance(Duration::from_millis(500));
        thread::yield_now();
    }
    assert!(drain.join().unwrap().is_clean());
}

/// A request that has begun is read, answered, and is the last one.
#[test]
fn drain_half_request() {
    let site = Site::new(noting(&Calls::default()));
    let mut idle = site.client_with(get("/"));
    assert_eq!(idle.answer().unwrap().status, 200);
    let mut head = site.client_with("GET / HTTP/1.1\r\nHo");
    let mut body = site.client_with("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe");
    site.settle(&head);
    site.settle(&body);
    let server = site.server.clone();
    let drain = thread::spawn(move || server.drain(DRAIN));
    assert_eq!(idle.rest(), b"");
    head.send("st: a\r\n\r\n");
    body.send("llo");
    for client in [&mut head, &mut body] {
        let answer = client.answer().unwrap();
        assert_eq!(
            (answer.status, answer.field("connection")),
            (200, Some("close"))
        );
        assert_eq!(client.rest(), b"");
    }
    assert!(drain.join().unwrap().is_clean());
}

/// An answer is on its way, in parts that the client takes slowly: it gets all of it.
#[test]
fn drain_lets_an_answer_end() {
    let router = Router::new(())
        .get("/", |(), _| "ok")
        .get("/long", |(), _| Response::new(vec![b'x'; 300_000]));
    let site = Site::new(router);
    let mut idle = site.client_with(get("/"));
    assert_eq!(idle.answer().unwrap().status, 200);
    let mut client = site.client_with(get("/long"));
    let head = client.take(64).unwrap();
    let server = site.server.clone();
    let drain = thread::spawn(move || server.drain(DRAIN));
    assert_eq!(idle.rest(), b"");
    let rest = client.rest();
    assert!(head.len() + rest.len() > 300_000, "{} bytes", rest.len());
    assert!(drain.join().unwrap().is_clean());
}

/// A handler works, on a thread of the pool or on its own: its answer is waited for.
#[test]
fn drain_in_work() {
    let (release, gate) = mpsc::channel::<()>();
    let calls = Calls::default();
    let router = Router::new((calls.clone(), Mutex::new(gate)))
        .post("/", |(calls, gate), req| {
            calls.note("called");
            req.blocking(|| gate.lock().unwrap().recv()).unwrap();
            "ok"
        })
        .post("/pull", |(calls, gate), req| {
            calls.note("called");
            let _ = req.bytes();
            gate.lock().unwrap().recv().unwrap();
            "ok"
        })
        .body(Body::Pull)
        .get("/", |_, _| "ok");
    // A body that comes with its head is pulled on a thread of the pool.
    let site = Site::with_threads(4, router, |server| server);
    let mut idle = site.client_with(get("/"));
    assert_eq!(idle.answer().unwrap().status, 200);
    let mut at_work = site.client_with("POST / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut pulls =
        site.client_with("POST /pull HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe");
    wait(|| pulls.peer.is_read_by_pool());
    pulls.send("llo");
    wait(|| calls.all().len() == 2);
    let server = site.server.clone();
    let drain = thread::spawn(move || server.drain(DRAIN));
    assert_eq!(idle.rest(), b"");
    // One thread is in a handler. When the others sleep, every connection knows of the drain.
    wait(|| site.world.clock().asleep() >= 3);
    release.send(()).unwrap();
    release.send(()).unwrap();
    for client in [&mut at_work, &mut pulls] {
        let answer = client.answer().unwrap();
        assert_eq!(
            (answer.status, answer.field("connection")),
            (200, Some("close"))
        );
        assert_eq!(client.rest(), b"");
    }
    assert!(drain.join().unwrap().is_clean());
}

/// All routes are one type of handler: what the pool learns of one must not spoil the others.
#[test]
fn routes_learn_apart() {
    let world = Simulation::new(3);
    let inlet = Inlet::new(&world);
    let router = Router::new(world.clone())
        .get("/slow", |world, _| {
            // Time passes in this handler, as if it slept.
            world.clock().advance(Duration::from_millis(1));
            "ok"
        })
        .get("/known", |_, _| "ok")
        .blocks()
        .get("/quick", |_, _| "ok");
    let set = SetKind::Simulated(world.clone());
    let server = HttpServer::new(Listen::simulated(&inlet), router)
        .pool(|pool| pool.threads(THREADS).handle_set(set))
        .start()
        .unwrap();
    let peer = inlet.connect();
    for path in ["/slow", "/quick"].into_iter().cycle().take(120) {
        peer.send(get(path).as_bytes());
        let mut answer = Vec::new();
        while !answer.ends_with(b"ok") {
            answer.extend(peer.wait_for(1));
        }
    }
    let pace = |name: &str| server.pool().handler_kind(name).pace();
    assert_ne!(pace("GET /slow"), Pace::Short);
    assert_eq!(pace("GET /quick"), Pace::Short);
    assert_eq!(pace("GET /known"), Pace::Blocking);
}

struct Sum(u64, Calls);

impl Push for Sum {
    fn piece(&mut self, bytes: &[u8]) -> Result<()> {
        self.0 += bytes.len() as u64;
        self.1.note(format!("{} bytes", bytes.len()));
        Ok(())
    }

    fn end(self: Box<Self>) -> Result<Response> {
        Ok(Response::text(self.0.to_string()))
    }
}

/// A body goes to its handler as it comes, and no further than the limit.
#[test]
fn a_body_is_pushed() {
    let calls = Calls::default();
    let router = Router::new(calls.clone())
        .put("/", |calls, _| Sum(0, calls.clone()))
        .body(Body::Push)
        .limit(10);
    let site = Site::new(router);
    let head = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut client = site.client_with(format!("{head}3\r\nabc\r\n"));
    wait(|| !calls.all().is_empty());
    client.send("2\r\nde\r\n0\r\n\r\n");
    assert_eq!(client.answer().unwrap().text(), "5");
    assert_eq!(calls.all(), ["3 bytes", "2 bytes"]);
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabcd");
    assert_eq!(client.answer().unwrap().text(), "4");
    let mut client = site.client_with(format!("{head}b\r\n0123456789a\r\n"));
    assert_eq!(client.statuses(), [413]);
}

/// A handler that pulls reads more than the pipe holds; its connection is reused.
#[test]
fn a_body_is_pulled() {
    let router = Router::new(())
        .post("/", |(), req| {
            let mut count = 0;
            let mut buffer = [0; 999];
            loop {
                match std::io::Read::read(&mut req.stream(), &mut buffer)? {
                    0 => return Ok::<_, Error>(count.to_string()),
                    read => count += read,
                }
            }
        })
        .body(Body::Pull);
    let site = Site::new(router);
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n";
    let mut client = site.client();
    for _ in 0..2 {
        client.send(head);
        for _ in 0..30 {
            client.send(vec![b'x'; 10_000]);
        }
        assert_eq!(client.answer().unwrap().text(), "300000");
    }
    // A client that is gone ends the handler's wait.
    client.send(head);
    site.settle(&client);
    client.peer.reset();
    wait(|| site.server.connections() == 0);
}

/// Long answers of every form, whole.
#[test]
fn long_answers_arrive_whole() {
    let bytes: Vec<u8> = (0..200_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let router = Router::new(bytes.clone())
        .get("/bytes", |bytes, _| Response::new(bytes.clone()))
        .get("/read", |bytes, _| {
            Response::new(Content::read(std::io::Cursor::new(bytes.clone())))
        })
        .get("/exact", |bytes, _| {
            let reader = std::io::Cursor::new(bytes.clone());
            Response::new(Content::read_exact(reader, bytes.len() as u64))
        })
        .get("/last", |bytes, _| {
            let bytes = bytes.clone();
            Response::new(Content::pieces(move |part| {
                part.extend(&bytes);
                Ok(false)
            }))
        })
        .get("/pieces", |bytes, _| {
            let mut parts = vec![bytes.clone()];
            Response::new(Content::pieces(move |part| match parts.pop() {
                Some(all) => {
                    part.extend(all);
                    Ok(true)
                }
                None => Ok(false),
            }))
        });
    let site = Site::new(router);
    let mut client = site.client();
    for path in ["/bytes", "/read", "/exact", "/pieces", "/last", "/bytes"] {
        client.send(get(path));
        assert!(client.answer().unwrap().body == bytes, "{path}");
    }
    // HTTP/1.0 has no chunks: the end of the connection is the end.
    client.send("GET /pieces HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let answer = client.answer().unwrap();
    assert_eq!(answer.field("connection"), Some("close"));
    assert!(answer.body == bytes);
}

/// With all places taken, a client waits in the backlog of the system, and is not refused.
#[test]
fn full_house() {
    use std::{
        io::{Read, Write},
        net::TcpStream,
    };
    let server = HttpServer::new(Listen::tcp("127.0.0.1:0"), noting(&Calls::default()))
        .limits(|limits| limits.connections(1))
        .start()
        .unwrap();
    let address = server.local_addr().unwrap();
    let ask = || {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(get("/").as_bytes()).unwrap();
        client
    };
    let mut first = ask();
    first.read_exact(&mut [0; 12]).unwrap();
    let mut second = ask();
    second.set_nonblocking(true).unwrap();
    let nothing = second.read(&mut [0; 12]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(server.connections(), 1);
    drop(first);
    second.set_nonblocking(false).unwrap();
    let mut start = [0; 12];
    second.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
}

/// The threads that run the handler, by the name of their pool, and the length of the body.
fn place(req: &mut paceline_server::http::Request<'_>) -> String {
    let length = req.bytes().map_or(0, |body| body.len());
    let thread = thread::current().name().unwrap_or_default().to_owned();
    let pool = thread.trim_end_matches(|part: char| part.is_ascii_digit() || part == '-');
    format!("{pool} {length}")
}

/// Routes of another level run on its threads, also with a body that comes later, and the next
/// request for the others is back on theirs.
#[test]
fn routes_have_levels() {
    let world = Simulation::new(5);
    let inlet = Inlet::new(&world);
    let router = Router::new(())
        .get("/", |(), req| place(req))
        .post("/bulk", |(), req| place(req))
        .level("bulk");
    let (main, bulk) = (world.clone(), world.beside());
    let server = HttpServer::new(Listen::simulated(&inlet), router)
        .pool(|pool| pool.name("main").handle_set(SetKind::Simulated(main)))
        .threads(2)
        .server(|server| {
            let pool = Pool::builder().threads(1).name("bulk");
            server.level("bulk", pool.handle_set(SetKind::Simulated(bulk)))
        })
        .start()
        .unwrap();
    let mut client = Client::new(inlet.connect());
    let post =
        |body: &str| format!("POST /bulk HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n{body}");
    for _ in 0..3 {
        client.send(get("/") + &post("hello") + &post("hello") + &get("/") + &post("he"));
        wait(|| client.peer.is_read_by_pool());
        client.send("llo");
        let places: Vec<_> = (0..5)
            .map(|_| client.answer().unwrap().text().to_owned())
            .collect();
        assert_eq!(places, ["main 0", "bulk 5", "bulk 5", "main 0", "bulk 5"]);
    }
    client.peer.finish();
    client.peer.wait_closed();
    assert!(server.drain(DRAIN).is_clean());
    let router = Router::new(()).get("/", |(), _| "").level("none");
    let error = HttpServer::new(Listen::tcp("127.0.0.1:0"), router)
        .start()
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("GET /: there is no level \"none\""), "{text}");
}

/// With a further listener, the first address of the server was that one's.
#[test]
fn the_first_address_is_that_of_the_web_server() {
    let line = paceline_server::codec::line(80);
    let echo = |line: paceline_server::codec::Message<'_>, cx: &mut paceline_server::Peer<'_>| {
        cx.reply(line).map(|()| paceline_server::Next::Continue)
    };
    let router = Router::new(()).get("/", |(), _| "ok");
    let web = paceline_server::Server::http("127.0.0.1:0", router);
    let server = web.server(|server| server.listen("127.0.0.1:0", line, move |_| echo));
    let server = server.start().unwrap();
    let mut client = std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    std::io::Write::write_all(&mut client, request).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut client, &mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    drop(client);
    assert!(server.drain(DRAIN).is_clean());
}

/// A file of 5 MB that changes in every place, over a socket whose client reads slowly and in odd
/// amounts: the system sends it, and parts that were written in between are in their places.
#[test]
fn a_file_arrives_whole() {
    let folder = std::env::temp_dir().join(format!("paceline-file-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("file");
    let bytes: Vec<u8> = (0..1_250_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&path, &bytes).unwrap();
    let router = Router::new(path)
        .get("/", |path, _| {
            Ok::<_, Error>(Response::new(Content::file(std::fs::File::open(path)?)?))
        })
        .get("/part", |path, _| {
            let file = std::fs::File::open(path)?;
            Ok::<_, Error>(Response::new(Content::part_of_file(file, 3, 4_000_001)?))
        })
        .get("/next", |_, _| "next");
    let server = paceline_server::Server::http("127.0.0.1:0", router);
    let server = server.threads(2).start().unwrap();
    let mut client = std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let all = [get("/"), get("/part"), get("/next")].concat();
    std::io::Write::write_all(&mut client, all.as_bytes()).unwrap();
    let (mut received, mut size) = (Vec::new(), 1);
    while !received.ends_with(b"\r\n\r\nnext") {
        let mut part = vec![0; size];
        let count = std::io::Read::read(&mut client, &mut part).unwrap();
        assert!(
            count > 0,
            "the connection ended after {} bytes",
            received.len()
        );
        received.extend_from_slice(&part[..count]);
        size = size * 3 % 70_001 + 1;
    }
    let mut rest = &received[..];
    for expected in [&bytes[..], &bytes[3..4_000_004]] {
        let head = rest.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
        let (body, behind) = rest[head..].split_at(expected.len());
        assert!(body == expected, "a body has other bytes");
        rest = behind;
    }
    drop(client);
    assert!(server.drain(DRAIN).is_clean());
    std::fs::remove_dir_all(&folder).unwrap();
}
