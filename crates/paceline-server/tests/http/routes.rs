//! What the report, the metrics and the page say of each route.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{mpsc, Mutex},
    thread,
    time::Duration,
};

use paceline_server::{
    http::{Body, Error, Push, Response, Result, Router},
    RouteReport, Server,
};

use crate::{
    support::{wait, Calls, Site},
    viewer::{get, Viewer},
};

struct Length(usize);

impl Push for Length {
    fn piece(&mut self, bytes: &[u8]) -> Result<()> {
        self.0 += bytes.len();
        match bytes {
            b"bad" => Err(Error::new(400, "bad")),
            b"panic" => panic!("on demand"),
            _ => Ok(()),
        }
    }

    fn end(self: Box<Self>) -> Result<Response> {
        Ok(Response::text(self.0.to_string()))
    }
}

/// A handler waits until the test lets it go.
type Gate = (Calls, Mutex<mpsc::Receiver<()>>);

fn router(calls: &Calls, gate: mpsc::Receiver<()>) -> Router<Gate> {
    Router::new((calls.clone(), Mutex::new(gate)))
        .get("/user/{id}", |_, req| {
            req.param::<u32>("id").map(|id| id.to_string())
        })
        .get("/broken", |_, _| -> &str { panic!("on demand") })
        .get("/unused", |_, _| "ok")
        .put("/push", |_, _| Length(0))
        .body(Body::Push)
        .get("/stuck", |(calls, gate), req| {
            calls.note("stuck");
            req.blocking(|| gate.lock().unwrap().recv())
                .is_ok()
                .to_string()
        })
}

fn ask(site: &Site, request: &str) {
    let mut client = site.client_with(request);
    client.answer().expect("an answer");
}

fn route<'r>(routes: &'r [RouteReport], name: &str) -> &'r RouteReport {
    let found = routes.iter().find(|route| route.name == name);
    found.unwrap_or_else(|| panic!("{name} in {routes:?}"))
}

/// After a drain one number of requests said nothing about where they went, and what was left undone.
#[test]
fn the_report_names_routes() {
    let calls = Calls::default();
    let (release, gate) = mpsc::channel();
    let site = Site::new(router(&calls, gate));
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    for path in ["/user/1", "/user/2", "/user/x", "/broken", "/none"] {
        ask(&site, &get(path));
    }
    for body in ["good", "bad", "panic"] {
        let length = body.len();
        let head = format!("PUT /push HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n");
        ask(&site, &format!("{head}\r\n{body}"));
        let mut slow = site.client_with(format!("{head}Expect: 100-continue\r\n\r\n"));
        assert_eq!(slow.answer().unwrap().status, 100);
        slow.send(body);
        slow.answer().expect("an answer");
    }
    let gone = site.client_with("PUT /push HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf");
    site.settle(&gone);
    gone.peer.reset();
    gone.peer.wait_closed();
    let _stuck = site.client_with(get("/stuck"));
    wait(|| calls.all() == ["stuck"]);
    let server = site.server.clone();
    let drain = thread::spawn(move || server.drain(Duration::from_secs(3)));
    wait(|| {
        // Nothing else moves the clock, by which the drain and the pool's own end wait.
        site.world.clock().advance(Duration::from_millis(500));
        drain.is_finished()
    });
    let report = drain.join().unwrap();
    let service = &report.services[0];
    let counts = |name: &str| {
        let route = route(&service.routes, name);
        (
            route.requests,
            route.refused,
            route.failed,
            route.unanswered,
        )
    };
    assert_eq!(counts("GET /user/{id}"), (3, 1, 0, 0));
    assert_eq!(counts("GET /broken"), (1, 0, 1, 0));
    assert_eq!(counts("PUT /push"), (7, 2, 2, 0));
    assert_eq!(counts("GET /stuck"), (1, 0, 0, 1));
    assert!(!service
        .routes
        .iter()
        .any(|route| route.name.contains("unused")));
    let text = report.to_string();
    let line = "\n  GET /stuck: 1 requests, 0 refused, 0 failed, 1 unanswered\n";
    assert!(text.contains(line), "{text}");
    release.send(()).unwrap();
}

/// The page shows each route, and a stuck handler under the name of its route; times are taken only
/// while the page is watched.
#[test]
fn the_page_shows_routes() {
    let calls = Calls::default();
    let (release, gate) = mpsc::channel();
    let server = Server::http("127.0.0.1:0", router(&calls, gate))
        .threads(2)
        .pool(|pool| pool.board(true))
        .page("127.0.0.1:0")
        .start()
        .unwrap();
    let (address, page) = (server.local_addr().unwrap(), server.page_addr().unwrap());
    let ask = move |path: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    ask("/user/1");
    let unwatched = Viewer::enter(page).wait_for("GET /user/{id}");
    let user = |report: &str| {
        let (_, rest) = report.split_once("{\"name\":\"GET /user/{id}\"").unwrap();
        rest[..rest.find('}').unwrap()].to_owned()
    };
    assert_eq!(
        user(&unwatched),
        ",\"pace\":\"short\",\"requests\":1,\"refused\":0,\"failed\":0,\"unanswered\":0,\
         \"p50\":null,\"p99\":null"
    );
    let mut viewer = Viewer::enter(page);
    viewer.next_report();
    ask("/user/1");
    let watched = viewer.wait_for("\"requests\":2");
    assert!(!user(&watched).contains("null"), "{watched}");
    let stuck = thread::spawn(move || ask("/stuck"));
    viewer.wait_for("\"stuck\":\"GET /stuck\"");
    let metrics = get(page, "/metrics");
    let line = format!(
        "\npaceline_http_requests_total{{service=\"{address}\",route=\"GET /user/{{id}}\"}} 2\n"
    );
    assert!(metrics.contains(&line), "{metrics}");
    let line =
        format!("\npaceline_http_unanswered{{service=\"{address}\",route=\"GET /stuck\"}} 1\n");
    assert!(metrics.contains(&line), "{metrics}");
    release.send(()).unwrap();
    assert!(stuck.join().unwrap().ends_with("true"));
    drop(viewer);
    assert!(server.drain(Duration::from_secs(30)).is_clean());
}
