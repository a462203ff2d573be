//! Requests that two servers may read differently: each is refused, nothing behind it is read, and
//! the handler is not called.

use paceline_server::http::{Response, Router};

use crate::{
    support::{noting, Calls, Site},
    table,
};

/// What hides behind a request.
const BEHIND: &str = "GET /behind HTTP/1.1\r\nHost: a\r\n\r\n";

/// Each of these is answered with `status`, and with nothing else.
fn all_refused(status: u16, cases: &[&str]) {
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    for case in cases {
        let mut client = site.client_with(format!("{case}{BEHIND}"));
        assert_eq!(client.statuses(), [status], "{case:?}");
    }
    assert_eq!(calls.all(), [""; 0]);
}

/// A request with these fields, and a body that is five bytes as well as no chunks: one that is
/// read in either way is answered, and found.
fn post(fields: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n0\r\n\r\n")
}

fn all_posts_refused(status: u16, fields: &[&str]) {
    let cases: Vec<_> = fields.iter().map(|fields| post(fields)).collect();
    all_refused(
        status,
        &cases.iter().map(String::as_str).collect::<Vec<_>>(),
    );
}

fn all_chunks_refused(bodies: &[&str]) {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let cases: Vec<_> = bodies.iter().map(|body| format!("{head}{body}")).collect();
    all_refused(400, &cases.iter().map(String::as_str).collect::<Vec<_>>());
}

/// The whole table, over connections.
#[test]
fn table_of_odd_requests() {
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    for case in table::cases() {
        let before = calls.all().len();
        let mut client = site.client_with(&case.raw);
        client.peer.finish();
        let method = if case.raw.starts_with(b"HEAD") {
            "HEAD"
        } else {
            "GET"
        };
        let shown = case.raw[..case.raw.len().min(100)]
            .escape_ascii()
            .to_string();
        let mut answer = client.answer_to(method).expect("there is an answer");
        if answer.status == 100 {
            answer = client.answer_to(method).expect("a final answer follows");
        }
        if case.status == 200 {
            // A request, perhaps one that has no route.
            let has_route = matches!(answer.status, 200 | 204);
            assert!(
                has_route || answer.field("allow").is_some(),
                "{} {shown}",
                answer.status
            );
        } else {
            assert_eq!(answer.status, case.status, "{shown}");
            assert_eq!(answer.field("connection"), Some("close"), "{shown}");
            assert_eq!(calls.all().len(), before, "{shown}");
        }
        client.peer.wait_closed();
    }
}

/// One server counts bytes, the next one chunks: the classic of request smuggling.
#[test]
fn both_lengths() {
    all_posts_refused(
        400,
        &[
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            "Transfer-Encoding: identity\r\nContent-Length: 5",
        ],
    );
}

/// Which of two lengths counts is a matter of taste.
#[test]
fn two_lengths() {
    all_posts_refused(
        400,
        &[
            "Content-Length: 5\r\nContent-Length: 5",
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: 5, 5",
        ],
    );
}

/// Libraries that read numbers take more than digits.
#[test]
fn odd_length() {
    let lengths = [
        "+5",
        "0x5",
        "5_0",
        "",
        "-0",
        "00000000000000000005",
        "5 ,",
        "5\t0",
    ];
    let fields: Vec<_> = lengths
        .map(|length| format!("Content-Length: {length}"))
        .into();
    all_posts_refused(400, &fields.iter().map(String::as_str).collect::<Vec<_>>());
}

/// A coding that is not known, or chunks that are not the outermost coding, hide the end.
#[test]
fn coding_not_chunked_last() {
    all_posts_refused(
        400,
        &[
            "Transfer-Encoding: chunked, gzip",
            "Transfer-Encoding: chunked, chunked",
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        ],
    );
    all_posts_refused(501, &["Transfer-Encoding: gzip, chunked"]);
}

/// A proxy of that time passes the field on, and does not decode.
#[test]
fn coding_in_http10() {
    all_refused(
        400,
        &["POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"],
    );
}

/// A line feed alone ends a line for some.
#[test]
fn bare_lf() {
    all_refused(
        400,
        &[
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\nA: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nA: b\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\n",
        ],
    );
    all_chunks_refused(&[
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "0\r\nA: b\n\r\n",
        "0\r\n\n",
    ]);
}

/// A carriage return or a NUL ends a value for some.
#[test]
fn bare_cr_or_nul() {
    all_refused(
        400,
        &[
            "GET / HTTP/1.1\r\nHost: a\r\nA: b\rc\r\n\r\n",
            "GET / HTTP/1.0\r\nA: b\rc\r\n\r\n",
            "GET / HTTP/1.0\r\nA: b\0c\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nA: b\0c\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nA\0: b\r\n\r\n",
        ],
    );
}

/// Some join a folded line to the one before, some take it for a field.
#[test]
fn folded_field() {
    all_refused(
        400,
        &[
            "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nA: b\r\n\tContent-Length: 5\r\n\r\nhello",
        ],
    );
}

/// `Content-Length : 5` is another field for some.
#[test]
fn space_before_colon() {
    all_posts_refused(400, &["Content-Length : 5", "Transfer-Encoding\t: chunked"]);
}

/// The first field is not the continuation of the request line.
#[test]
fn space_before_first_field() {
    all_refused(400, &["GET / HTTP/1.1\r\n Host: a\r\nHost: b\r\n\r\n"]);
}

/// Names are tokens.
#[test]
fn odd_field_name() {
    let names = [": b", "A B: c", "A\u{e4}: b", "A", "A(B): c", "\"A\": b"];
    let fields: Vec<_> = names.map(str::to_owned).into();
    all_posts_refused(400, &fields.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Sizes are one to sixteen hexadecimal digits.
#[test]
fn chunk_size_forms() {
    let sizes = [
        "0x5",
        "+5",
        " 5",
        "5 ",
        "",
        "00000000000000005",
        "5_",
        "-5",
        "5h",
    ];
    let bodies: Vec<_> = sizes
        .map(|size| format!("{size}\r\nhello\r\n0\r\n\r\n"))
        .into();
    all_chunks_refused(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Some servers look for the end of an extension, and pass over a line feed in it.
#[test]
fn chunk_extension_lf() {
    all_chunks_refused(&["5;\nhello\r\n0\r\n\r\n", "5;a\nhello\r\n0\r\n\r\n"]);
}

/// Some servers skip two bytes behind the data, whatever they are.
#[test]
fn chunk_data_spills() {
    all_chunks_refused(&[
        "5\r\nhello!!0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "4\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\r\n0\r\n\r\n",
    ]);
}

/// A trailer must not become a header behind the back of a proxy.
#[test]
fn trailer_is_no_header() {
    let router = Router::new(()).post("/", |(), req| {
        let host = req.host().unwrap_or_default().to_owned();
        let has = req.header("authorization").is_some() || req.headers().count() != 2;
        format!("{host} {has} {}", req.bytes().map_or(0, |body| body.len()))
    });
    let site = Site::new(router);
    let mut client = site.client_with(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\
         Host: b\r\nAuthorization: x\r\n\r\n",
    );
    assert_eq!(client.answer().unwrap().text(), "a false 5");
}

/// GET, HEAD and OPTIONS may have a body: it is no second request.
#[test]
fn body_is_no_request() {
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    for method in ["GET", "HEAD", "OPTIONS"] {
        let length = BEHIND.len();
        let mut client = site.client_with(format!(
            "{method} /a HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{BEHIND}"
        ));
        let answer = client.answer_to(method).unwrap();
        assert!(matches!(answer.status, 200 | 204));
        assert_eq!(client.rest(), b"");
    }
    assert_eq!(calls.all(), ["GET /a 33", "HEAD /a 33"]);
}

/// The host decides which site answers.
#[test]
fn host_doubtful() {
    all_refused(
        400,
        &[
            "GET / HTTP/1.1\r\nA: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: \r\n\r\n",
            "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
        ],
    );
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    let mut client = site.client_with("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.statuses(), [200]);
}

/// RFC 9112, 3.2.2: the target's host, not the field's.
#[test]
fn absolute_target_wins() {
    let router = Router::new(()).get("/p", |(), req| {
        format!("{:?} {:?}", req.host(), req.query())
    });
    let site = Site::new(router);
    let mut client = site.client_with("GET http://b:81/p?q HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().unwrap().text(), r#"Some("b:81") Some("q")"#);
}

/// A version that is not known may frame its messages otherwise.
#[test]
fn version_forms() {
    all_refused(
        400,
        &[
            "GET / HTTP/01.1\r\nHost: a\r\n\r\n",
            "GET / http/1.1\r\nHost: a\r\n\r\n",
        ],
    );
    all_refused(
        505,
        &[
            "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
            "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ],
    );
}

/// Gateways that make variables of names write `_` for `-`: here it is another name.
#[test]
fn underscore_is_another_name() {
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    let mut client = site.client_with(
        "GET /a HTTP/1.1\r\nHost: a\r\nContent_Length: 36\r\nTransfer_Encoding: chunked\r\n\r\n\
         GET /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(client.statuses(), [200, 200]);
    assert_eq!(calls.all(), ["GET /a 0", "GET /b 0"]);
}

/// A handler puts what a client sent into a header: the client must not end the answer there.
#[test]
fn no_response_splitting() {
    let router = Router::new(()).get("/", |(), req| {
        let value = req.query_value("v").unwrap_or_default().into_owned();
        Response::text("secret").header("x-value", value)
    });
    let site = Site::new(router);
    let mut client = site.client_with(
        "GET /?v=a%0d%0aSet-Cookie:%20b HTTP/1.1\r\nHost: a\r\n\r\n\
         GET /?v=a%0ab HTTP/1.1\r\nHost: a\r\n\r\n\
         GET /?v=fine HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    for _ in 0..2 {
        let answer = client.answer().unwrap();
        assert_eq!(answer.status, 500);
        assert_eq!(
            (answer.field("set-cookie"), answer.field("x-value")),
            (None, None)
        );
        assert!(!answer.text().contains("secret"));
    }
    assert_eq!(client.answer().unwrap().field("x-value"), Some("fine"));
}

/// tiny_http (issue 287) took the last of two lengths, lines that LF ends, and `Content-Length : 5`: behind a proxy that
/// reads these otherwise, a client hides a request in the body of another. Here the request that comes in such a form is
/// refused, whatever has been answered on the connection, and what hides behind it is neither called nor answered.
#[test]
fn request_smuggling() {
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    let length = BEHIND.len();
    let doubts = [
        format!("Content-Length: 0\r\nContent-Length: {length}\r\n\r\n"),
        format!("Content-Length: {length}\r\nContent-Length: 0\r\n\r\n"),
        format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("Content-Length : {length}\r\n\r\n"),
        format!("A: b\nContent-Length: {length}\r\n\r\n"),
        format!("A: b\r\n Content-Length: {length}\r\n\r\n"),
    ];
    for doubt in &doubts {
        let before = calls.all().len();
        let mut client = site.client_with("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.answer().unwrap().status, 200);
        let post = format!("POST /front HTTP/1.1\r\nHost: a\r\n{doubt}{BEHIND}{BEHIND}");
        client.send(post);
        assert_eq!(client.statuses(), [400], "{doubt:?}");
        client.peer.wait_closed();
        assert_eq!(calls.all()[before..], ["GET /first 0"], "{doubt:?}");
    }
}

/// tiny_http (issue 288) wrote line ends of a header's value as they were, so that a client that chose the value wrote
/// headers and whole answers. Every way to set a header refuses them, in names too, and the connection goes on.
#[test]
fn header_injection() {
    let evil = "a\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nx: y";
    let router = Router::new(())
        .get("/value", move |(), _| {
            Response::text("own").header("x-own", evil)
        })
        .get("/name", move |(), _| {
            Response::text("own").header(evil, "b")
        })
        .get("/type", move |(), _| {
            Response::text("own").header("content-type", evil)
        })
        .get("/redirect", move |(), _| Response::see_other(evil));
    let site = Site::new(router);
    for path in ["/value", "/name", "/type", "/redirect"] {
        let mut client =
            site.client_with(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n{BEHIND}"));
        let answer = client.answer().unwrap();
        assert_eq!((answer.status, answer.field("x")), (500, None), "{path}");
        assert_eq!(answer.field("x-own"), None, "{path}");
        // The next answer is that of the next request.
        assert_eq!(client.answer().unwrap().status, 404, "{path}");
    }
}

/// A doubt in the second of three requests: what came before it is answered.
#[test]
fn bad_second_of_three() {
    let calls = Calls::default();
    let site = Site::new(noting(&calls));
    let mut client = site.client_with(format!(
        "GET /first HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost : a\r\n\r\n{BEHIND}"
    ));
    assert_eq!(client.statuses(), [200, 400]);
    assert_eq!(calls.all(), ["GET /first 0"]);
}
