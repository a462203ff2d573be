//! The live page as its viewers see it: over HTTP, as a stream of reports, and in a browser.

#[path = "page/browser.rs"]
mod browser;
#[path = "page/viewer.rs"]
mod viewer;

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::mpsc,
    thread,
    time::Duration,
};

use paceline::{
    observe::{Role, ThreadReport},
    simulated::Simulation,
    Next, Pool, SetKind,
};
use paceline_server::{
    codec::{line, Message},
    page, Inlet, Listen, Peer, Server, ServerBuilder,
};
use viewer::{get, number_in, request, wait_until, Viewer};

/// A server of echoes under a name of which a careless page would make an element.
const NAME: &str = "orders </script><b>\"bold\"";

fn echo(line: Message<'_>, cx: &mut Peer<'_>) -> std::io::Result<Next> {
    cx.reply(line)?;
    Ok(Next::Continue)
}

fn server() -> ServerBuilder {
    let listen = Listen::tcp("127.0.0.1:0").name(NAME);
    Server::builder()
        .threads(2)
        .listener(listen, line(80), |_| echo)
        .page("127.0.0.1:0")
}

/// The port serves the page and what the port of metrics serves.
#[test]
fn every_path_has_its_answer() {
    let server = server().start().unwrap();
    let address = server.page_addr().unwrap();
    let document = get(address, "/");
    assert!(document.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(document.contains("\r\ncontent-security-policy: default-src 'none';"));
    assert!(document.ends_with("</html>\n"));
    assert!(get(address, "/metrics").contains("paceline_server_connections"));
    assert!(get(address, "/healthz").ends_with("\r\n\r\nok\n"));
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 200 "));
    assert!(get(address, "/other").starts_with("HTTP/1.1 404 "));
    let head = request(address, "HEAD / HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(head.contains("content-length: ") && head.ends_with("\r\n\r\n"));
    let post = request(address, "POST / HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(post.starts_with("HTTP/1.1 405 "));
    assert!(request(address, "GET /\r\n\r\n").starts_with("HTTP/1.1 400 "));
}

/// A page of another site whose name points here (DNS rebinding) gets nothing.
#[test]
fn page_foreign_host() {
    let server = server().page_host("stats.example").start().unwrap();
    let address = server.page_addr().unwrap();
    for path in ["/", "/events", "/metrics", "/healthz"] {
        for host in [
            "host: evil.example\r\n",
            "",
            "host: localhost\r\nhost: evil.example\r\n",
        ] {
            let answer = request(address, &format!("GET {path} HTTP/1.1\r\n{host}\r\n"));
            assert!(
                answer.starts_with("HTTP/1.1 403 "),
                "{path} {host}: {answer}"
            );
        }
    }
    let allowed = request(address, "GET / HTTP/1.1\r\nhost: stats.example:80\r\n\r\n");
    assert!(allowed.starts_with("HTTP/1.1 200 "));
}

/// An address that other computers reach is served only if a host is named.
#[test]
fn an_open_address_needs_a_host() {
    let refused = server().page("0.0.0.0:0").start().unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    let pool = Pool::builder().threads(1).build().unwrap();
    assert!(page(&pool).at("0.0.0.0:0").start().is_err());
    let open = page(&pool).at("0.0.0.0:0").host("stats.example").start();
    assert!(open.unwrap().url().starts_with("http://127.0.0.1:"));
}

/// A pool is observed while there is a viewer, and only then.
#[test]
fn a_pool_is_observed_while_there_is_a_viewer() {
    let pool = Pool::builder().threads(2).build().unwrap();
    let page = page(&pool).start().unwrap();
    let is_observed = || format!("{pool:?}").contains("observed: true");
    get(page.local_addr(), "/");
    get(page.local_addr(), "/metrics");
    assert!(!page.is_watched() && !is_observed());
    let mut one = Viewer::enter(page.local_addr());
    one.next_report();
    let mut other = Viewer::enter(page.local_addr());
    other.next_report();
    assert!(page.is_watched() && is_observed());
    drop(one);
    other.next_report();
    assert!(page.is_watched() && is_observed());
    drop(other);
    wait_until(|| !page.is_watched() && !is_observed());
    // And again.
    Viewer::enter(page.local_addr()).next_report();
    wait_until(|| !page.is_watched());
}

/// A thread whose handler blocks is shown as away, and the page is served also when every thread is.
#[test]
fn a_thread_that_blocks_is_away() {
    let pool = Pool::builder().threads(1).board(true).build().unwrap();
    let page = page(&pool).name("stuck").start().unwrap();
    let mut viewer = Viewer::enter(page.local_addr());
    viewer.next_report();
    let (release, released) = mpsc::channel::<()>();
    pool.post(move |cx| cx.blocking(|| released.recv().unwrap()))
        .unwrap();
    viewer.wait_for("\"doing\":\"away\"");
    let report = viewer.wait_for("\"stuck\":\"");
    assert!(
        report.contains("\"pools\":[{\"name\":\"stuck\",\"threads\":1,"),
        "{report}"
    );
    assert!(get(page.local_addr(), "/").starts_with("HTTP/1.1 200 "));
    release.send(()).unwrap();
    while viewer.next_report().contains("\"doing\":\"away\"") {}
}

/// With a board, a viewer who comes late sees since when a handler blocks, and which one.
#[test]
fn a_late_viewer_sees_what_the_board_knows() {
    let pool = Pool::builder().threads(1).board(true).build().unwrap();
    let page = page(&pool).start().unwrap();
    let (release, released) = mpsc::channel::<()>();
    pool.post(move |cx| cx.blocking(|| released.recv().unwrap()))
        .unwrap();
    let is_away = |thread: &ThreadReport| thread.role == Role::Away;
    wait_until(|| pool.inspect().threads().iter().any(is_away));
    let report = Viewer::enter(page.local_addr()).next_report();
    assert!(report.contains("\"doing\":\"away\""), "{report}");
    release.send(()).unwrap();
}

/// What was seen stays when another viewer comes: the observation goes on. (The pool has no board, so
/// nothing else knows what its thread does.)
#[test]
fn a_second_viewer_changes_nothing_for_the_first() {
    let pool = Pool::builder().threads(1).build().unwrap();
    let page = page(&pool).start().unwrap();
    let mut one = Viewer::enter(page.local_addr());
    one.next_report();
    let (release, released) = mpsc::channel::<()>();
    pool.post(move |cx| cx.blocking(|| released.recv().unwrap()))
        .unwrap();
    one.wait_for("\"doing\":\"away\"");
    let mut other = Viewer::enter(page.local_addr());
    let report = other.next_report();
    assert!(report.contains("\"doing\":\"away\""), "{report}");
    release.send(()).unwrap();
}

/// A server on virtual time is shown too: the page itself has the time of its viewers.
#[test]
fn a_simulated_server_is_shown() {
    let world = Simulation::new(8);
    let inlet = Inlet::new(&world);
    let set = SetKind::Simulated(world);
    let server = Server::builder()
        .pool(Pool::builder().threads(2).handle_set(set))
        .listener(
            Listen::simulated(&inlet).name("simulated"),
            line(80),
            |_| echo,
        )
        .page("127.0.0.1:0")
        .start()
        .unwrap();
    let mut viewer = Viewer::enter(server.page_addr().unwrap());
    viewer.next_report();
    let peer = inlet.connect();
    for _ in 0..100 {
        peer.send(b"hello\r\n");
        assert_eq!(peer.wait_for(7), b"hello\r\n");
    }
    viewer.wait_for("\"items\":100,");
    viewer.wait_for("\"doing\":\"leader\"");
}

/// The numbers of a report are those of the pool.
#[test]
fn numbers_equal_the_snapshot() {
    let server = server().start().unwrap();
    let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    for _ in 0..20 {
        client.write_all(b"hello\r\n").unwrap();
        client.read_exact(&mut [0; 7]).unwrap();
    }
    let mut viewer = Viewer::enter(server.page_addr().unwrap());
    let pool = server.pool();
    // The pool is quiet now: a report between two equal snapshots has their numbers.
    loop {
        let before = pool.snapshot();
        viewer.next_report();
        let report = viewer.next_report();
        if before != pool.snapshot() {
            continue;
        }
        for (name, value) in [
            ("promotions", before.promotions),
            ("wakes", before.wakes),
            ("accepted", before.accepted),
            ("longest_blind", before.longest_blind.as_nanos() as u64),
        ] {
            assert_eq!(number_in(&report, name), value, "{name}: {report}");
        }
        assert_eq!(number_in(&report, "items"), 20);
        assert_eq!(number_in(&report, "open"), 1);
        break;
    }
}

/// A name can't end the string or the script that it is in.
#[test]
fn page_escapes_names() {
    let server = server().start().unwrap();
    let mut viewer = Viewer::enter(server.page_addr().unwrap());
    let report = viewer.next_report();
    assert!(
        report.contains(r#""orders \u003c/script\u003e\u003cb\u003e\"bold\"""#),
        "{report}"
    );
}

/// A viewer sees the drain to its end, and holds it up no longer than other connections do.
#[test]
fn a_drain_is_shown() {
    let server = server().start().unwrap();
    let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    client.write_all(b"half a li").unwrap();
    let mut viewer = Viewer::enter(server.page_addr().unwrap());
    viewer.wait_for("\"open\":1");
    let drains = {
        let server = server.clone();
        thread::spawn(move || server.drain(Duration::from_secs(600)))
    };
    viewer.wait_for("\"ready\":false");
    client.write_all(b"ne\r\n").unwrap();
    let report = drains.join().unwrap();
    assert!(report.is_clean(), "{report}");
    assert!(viewer.has_ended(), "the page ends with the server");
}
