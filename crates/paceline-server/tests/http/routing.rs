//! Routes, hooks, what handlers are given and what they return.

use std::fs;

use paceline_server::http::{Error, Response, Result, Router};

use crate::support::{Calls, Site};

fn answer(site: &Site, request: &str) -> crate::support::Answer {
    let method = request.split(' ').next().unwrap_or_default().to_owned();
    let mut client = site.client_with(format!("{request}\r\n\r\n"));
    client.answer_to(&method).expect("there is an answer")
}

fn get(site: &Site, target: &str) -> crate::support::Answer {
    answer(site, &format!("GET {target} HTTP/1.1\r\nHost: a"))
}

/// Paths, methods and parameters lead to a handler, or to an answer that says why not.
#[test]
fn a_request_finds_its_handler() {
    let router = Router::new("state".to_owned())
        .get("/", |state, _| state.clone())
        .get("/user/{id}", |_, req| {
            req.param::<u64>("id").map(|id| format!("user {id}"))
        })
        .get("/name/{name}", |_, req| req.param::<String>("name"))
        .delete("/user/{id}", |_, _| ())
        .get("/broken", |_, req| req.param::<u64>("none").map(|_| ()));
    let site = Site::new(router);
    assert_eq!(get(&site, "/").text(), "state");
    assert_eq!(get(&site, "/user/7").text(), "user 7");
    assert_eq!(get(&site, "/name/%C3%A4%2Fb").text(), "\u{e4}/b");
    for (request, status) in [
        ("GET /user/x HTTP/1.1\r\nHost: a", 400),
        ("GET /name/%ff HTTP/1.1\r\nHost: a", 400),
        ("GET /none HTTP/1.1\r\nHost: a", 404),
        ("GET /user HTTP/1.1\r\nHost: a", 404),
        ("DELETE /user/7 HTTP/1.1\r\nHost: a", 204),
        ("GET /broken HTTP/1.1\r\nHost: a", 500),
        ("POST / HTTP/1.1\r\nHost: a", 405),
        ("BREW / HTTP/1.1\r\nHost: a", 501),
        ("OPTIONS /user/7 HTTP/1.1\r\nHost: a", 204),
        ("OPTIONS * HTTP/1.1\r\nHost: a", 204),
        ("HEAD /user/7 HTTP/1.1\r\nHost: a", 200),
    ] {
        let answer = answer(&site, request);
        assert_eq!(answer.status, status, "{request}");
        if matches!(status, 405 | 501) {
            assert_eq!(answer.field("allow"), Some("GET, HEAD, OPTIONS"));
        }
    }
}

/// Hooks see every request and every answer.
#[test]
fn hooks_stand_around_a_handler() {
    let calls = Calls::default();
    let router = Router::new(calls.clone())
        .get("/", |_, _| "ok")
        .get("/fails", |_, _| -> Result<()> { Err(std::fmt::Error)? })
        .before(|_, req| match req.header("authorization") {
            Some("no") => Err(Error::new(403, "no")),
            Some("later") => Ok(Some(Response::empty(202))),
            _ => Ok(None),
        })
        .after(|calls, req, response| {
            let error = response.error().map(ToString::to_string);
            calls.note(format!("{} {} {error:?}", req.path(), response.code()));
        });
    let site = Site::new(router);
    assert_eq!(get(&site, "/").status, 200);
    let fails = get(&site, "/fails");
    assert_eq!(
        (fails.status, fails.text()),
        (500, "Internal Server Error\n")
    );
    let with = |value: &str| {
        answer(
            &site,
            &format!("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: {value}"),
        )
        .status
    };
    assert_eq!((with("no"), with("later")), (403, 202));
    assert_eq!(get(&site, "/none").status, 404);
    let shown = std::fmt::Error.to_string();
    assert_eq!(
        calls.all(),
        [
            "/ 200 None".to_owned(),
            format!("/fails 500 Some(\"500 Internal Server Error: {shown}\")"),
            "/ 403 Some(\"403 Forbidden: no\")".to_owned(),
            "/ 202 None".to_owned(),
            "/none 404 Some(\"404 Not Found: not found\")".to_owned(),
        ]
    );
}

/// Forms, JSON, cookies, the query, and names of requests.
#[test]
fn a_request_is_read_in_many_ways() {
    let router = Router::new(())
        .post("/form", |(), req| {
            req.form().map(|form| format!("{form:?}"))
        })
        .post("/json", |(), req| {
            let numbers: Vec<u64> = req.json()?;
            Response::json(&numbers.iter().sum::<u64>())
        })
        .get("/", |(), req| {
            let http = req.to_http()?;
            Ok::<_, Error>(format!(
                "{:?} {:?} {} {}",
                req.cookie("b"),
                req.query_value("q"),
                req.id(),
                http.uri()
            ))
        });
    let site = Site::new(router);
    let post = |path: &str, kind: &str, body: &str| {
        let length = body.len();
        let mut client = site.client_with(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             \r\n{body}"
        ));
        client.answer().unwrap()
    };
    let form = "application/x-www-form-urlencoded; charset=utf-8";
    assert_eq!(
        post("/form", form, "a=1&b=+%26").text(),
        r#"[("a", "1"), ("b", " &")]"#
    );
    assert_eq!(post("/form", "text/plain", "a=1").status, 415);
    let sum = post("/json", "application/json", "[1,2,3]");
    assert_eq!(
        (sum.text(), sum.field("content-type")),
        ("6", Some("application/json"))
    );
    assert_eq!(post("/json", "application/json", "[1,").status, 400);
    let all = answer(
        &site,
        "GET /?q=a%20b HTTP/1.1\r\nHost: a\r\nCookie: a=1; b=2\r\nX-Request-Id: r-1",
    );
    assert_eq!(all.text(), r#"Some("2") Some("a b") r-1 /?q=a%20b"#);
    let odd = answer(&site, "GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: a b");
    assert!(odd.text().ends_with("-1 /"), "{}", odd.text());
}

/// Whatever a client writes, it gets files of the folder alone.
#[test]
fn path_escape() {
    let outside = std::env::temp_dir().join(format!("paceline-escape-{}", std::process::id()));
    let folder = outside.join("public");
    fs::create_dir_all(folder.join("sub")).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    fs::write(folder.join("sub/a.txt"), "hello").unwrap();
    std::os::unix::fs::symlink("../secret", folder.join("link")).unwrap();
    std::os::unix::fs::symlink(outside.join("secret"), folder.join("absolute")).unwrap();
    let site = Site::new(Router::new(()).files("/f", &folder));
    let found = get(&site, "/f/sub/a.txt");
    assert_eq!((found.status, found.text()), (200, "hello"));
    assert_eq!(
        found.field("content-type"),
        Some("text/plain; charset=utf-8")
    );
    for path in [
        "/f/../secret",
        "/f/sub/../../secret",
        "/f/%2e%2e/secret",
        "/f/..%2fsecret",
        "/f/%2e%2e%2fsecret",
        "/f/..%5csecret",
        "/f//secret",
        "/f/%2fetc/passwd",
        "/f/sub/a.txt%00",
        "/f/%00",
        "/f/link",
        "/f/absolute",
        "/f/sub",
        "/f/sub/",
        "/f/none",
        "/f/%ff",
    ] {
        let answer = get(&site, path);
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
    }
    fs::remove_dir_all(&outside).unwrap();
}

/// Parts, versions and compressed forms of a file.
#[test]
fn a_file_is_served_in_parts_and_forms() {
    let folder = std::env::temp_dir().join(format!("paceline-files-http-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("a.js"), "0123456789").unwrap();
    fs::write(folder.join("a.js.gz"), "packed").unwrap();
    let site = Site::new(Router::new(()).files("/", &folder));
    let with = |fields: &str| answer(&site, &format!("GET /a.js HTTP/1.1\r\nHost: a{fields}"));
    let whole = with("");
    assert_eq!((whole.status, whole.text()), (200, "0123456789"));
    let tag = whole.field("etag").unwrap().to_owned();
    let date = whole.field("last-modified").unwrap().to_owned();
    let part = with("\r\nRange: bytes=2-4");
    assert_eq!((part.status, part.text()), (206, "234"));
    assert_eq!(part.field("content-range"), Some("bytes 2-4/10"));
    assert_eq!(with("\r\nRange: bytes=20-").status, 416);
    assert_eq!(
        with(&format!("\r\nRange: bytes=0-0\r\nIf-Range: {tag}")).status,
        206
    );
    assert_eq!(
        with("\r\nRange: bytes=0-0\r\nIf-Range: \"old\"").status,
        200
    );
    assert_eq!(
        with(&format!("\r\nIf-None-Match: \"x\", {tag}")).status,
        304
    );
    assert_eq!(with(&format!("\r\nIf-Modified-Since: {date}")).status, 304);
    let packed = with("\r\nAccept-Encoding: br, gzip");
    assert_eq!(
        (packed.text(), packed.field("content-encoding")),
        ("packed", Some("gzip"))
    );
    assert_eq!(
        packed.field("content-type"),
        Some("text/javascript; charset=utf-8")
    );
    let head = answer(&site, "HEAD /a.js HTTP/1.1\r\nHost: a");
    assert_eq!(head.field("content-length"), Some("10"));
    fs::remove_dir_all(&folder).unwrap();
}

/// Several ranges may ask for far more than the file has.
#[test]
fn many_ranges() {
    let folder = std::env::temp_dir().join(format!("paceline-ranges-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("a"), "0123456789").unwrap();
    let site = Site::new(Router::new(()).files("/", &folder));
    let ranges = "0-,".repeat(500);
    let answer = answer(
        &site,
        &format!("GET /a HTTP/1.1\r\nHost: a\r\nRange: bytes={ranges}0-1"),
    );
    assert_eq!((answer.status, answer.text()), (200, "0123456789"));
    fs::remove_dir_all(&folder).unwrap();
}

/// Routes that contradict each other are found before anything is served.
#[test]
fn impossible_routes_are_named() {
    let router = Router::new(())
        .get("/a", |(), _| "")
        .get("/a", |(), _| "")
        .get("/{a}/x", |(), _| "")
        .get("/{b}/x", |(), _| "")
        .blocks();
    let error = paceline_server::Server::http("127.0.0.1:0", router)
        .start()
        .unwrap_err();
    let text = error.to_string();
    for part in [
        "GET /a: there are two",
        "/{b}/x",
        "blocks: it follows no route",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
