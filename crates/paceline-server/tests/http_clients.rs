//! Clients that others have written, against the HTTP server. A client that is not installed is
//! passed over, with a message.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Output},
    time::Duration,
};

use paceline_server::{
    http::{Body, Content, Response, Router},
    Server,
};

/// A server with what the clients ask for.
struct Site {
    server: Server,
    folder: PathBuf,
}

impl Site {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("paceline-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        fs::write(folder.join("body"), body()).expect("a temporary file");
        let echo = |(): &(), req: &mut paceline_server::http::Request<'_>| {
            req.bytes().map(|body| Response::new(body.into_owned()))
        };
        let router = Router::new(())
            .get("/", |(), _| "hello")
            .get("/chunks", |(), _| {
                let mut parts = 0;
                Response::new(Content::pieces(move |part| {
                    part.extend_from_slice(b"part ");
                    parts += 1;
                    Ok(parts < 3) // with the last part
                }))
            })
            .get("/long", |(), _| Response::new(vec![b'x'; 1 << 20]))
            .get("/panic", |(), _| -> Response { panic!("planned") })
            .put("/echo", echo)
            .post("/echo", echo)
            .put("/pull", echo)
            .body(Body::Pull)
            .post("/refused", |(), _| "no")
            .limit(10);
        let server = Server::http("127.0.0.1:0", router)
            .start()
            .expect("a server");
        Self { server, folder }
    }

    fn address(&self) -> SocketAddr {
        self.server.local_addr().expect("it listens")
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // What a client has left open is idle.
        let report = self.server.drain(Duration::from_secs(30));
        let _ = fs::remove_dir_all(&self.folder);
        if !std::thread::panicking() {
            assert!(report.is_clean(), "{report}");
        }
    }
}

fn body() -> String {
    "0123456789abcdef".repeat(20_000)
}

/// What the program prints; `None` if there is no such program.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let ran = Command::new(program).args(arguments).output();
    let Output {
        status,
        stdout,
        stderr,
    } = match ran {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("{program} is not installed: passed over");
            return None;
        }
        ran => ran.expect("a program that is there starts"),
    };
    let shown = String::from_utf8_lossy(&stderr);
    assert!(
        status.success(),
        "{program} {arguments:?}: {status}\n{shown}"
    );
    Some(String::from_utf8_lossy(&stdout).into_owned())
}

/// curl, with its odd options. It prints the body, and behind it the status and the version.
#[test]
fn curl() {
    if run("curl", &["--version"]).is_none() {
        return;
    }
    let site = Site::new("curl");
    let file = site.folder.join("body").display().to_string();
    let curl = |path: &str, options: &[&str]| {
        let url = site.url(path);
        let common = [
            "-sS",
            "--max-time",
            "60",
            "-w",
            " %{http_code} %{http_version}",
        ];
        run("curl", &[&common, options, &[url.as_str()]].concat()).expect("curl is there")
    };
    assert_eq!(curl("/", &[]), "hello 200 1.1");
    assert_eq!(curl("/", &["--http1.0"]), "hello 200 1.1");
    assert_eq!(curl("/", &["-I"]).lines().last(), Some(" 200 1.1"));
    assert_eq!(curl("/chunks", &[]), "part part part  200 1.1");
    assert_eq!(curl("/chunks", &["--http1.0"]), "part part part  200 1.1");
    assert_eq!(
        curl("/../etc/passwd", &["--path-as-is"]),
        "not found\n 404 1.1"
    );
    assert_eq!(curl("/panic", &[]), "Internal Server Error\n 500 1.1");
    let whole = format!("{} 200 1.1", body());
    for path in ["/echo", "/pull"] {
        // A file has a length; standard input is sent in chunks; both expect a word first.
        assert!(curl(path, &["-T", &file]) == whole, "{path}");
        assert!(
            curl(path, &["-T", &file, "--expect100-timeout", "30"]) == whole,
            "{path}"
        );
        let chunked = ["-T", &file, "-H", "Transfer-Encoding: chunked"];
        assert!(curl(path, &chunked) == whole, "{path}");
    }
    // Standard input has no length: it is sent in chunks.
    let script = format!(
        "cat {file} | curl -sS --max-time 60 -T - {}",
        site.url("/echo")
    );
    assert!(run("sh", &["-c", &script]).expect("sh is there") == body());
    let data = format!("@{file}");
    let refused = curl(
        "/refused",
        &["--data-binary", &data, "-H", "Expect: 100-continue"],
    );
    assert!(refused.ends_with(" 413 1.1"), "{refused}");
    // Two requests on one connection.
    let twice = curl("/", &[&site.url("/chunks"), "-w", "%{num_connects};"]);
    assert_eq!(twice.matches("0;").count(), 1, "{twice}");
}

/// Python's own client, with keep-alive.
#[test]
fn python() {
    let site = Site::new("python");
    let script = r#"
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
def ask(method, path, **more):
    connection.request(method, path, **more)
    answer = connection.getresponse()
    return answer.status, answer.read()
assert ask("GET", "/") == (200, b"hello")
assert ask("HEAD", "/") == (200, b"")
assert ask("GET", "/chunks") == (200, b"part part part ")
assert ask("POST", "/echo", body=b"x" * 300000) == (200, b"x" * 300000)
assert ask("PUT", "/pull", body=iter([b"a" * 1000] * 100), encode_chunked=True,
    headers={"Transfer-Encoding": "chunked"}) == (200, b"a" * 100000)
assert ask("GET", "/none")[0] == 404
assert ask("DELETE", "/")[0] == 405
assert ask("GET", "/")[0] == 200
print("done")
"#;
    let port = site.address().port().to_string();
    if let Some(printed) = run("python3", &["-c", script, &port]) {
        assert_eq!(printed, "done\n");
    }
}

/// Python's `requests`, with a session that keeps connections, a generator as a body, and streaming.
#[test]
fn python_requests() {
    let site = Site::new("requests");
    let script = r#"
import sys
try:
    import requests
except ImportError:
    print("missing")
    sys.exit()
base = sys.argv[1]
session = requests.Session()
session.trust_env = False
def ask(method, path, **more):
    answer = session.request(method, base + path, timeout=60, **more)
    return answer.status_code, answer.content
assert ask("GET", "/") == (200, b"hello")
assert ask("HEAD", "/") == (200, b"")
assert ask("OPTIONS", "/")[0] == 204
assert ask("GET", "/chunks", stream=True) == (200, b"part part part ")
assert ask("POST", "/echo", data=b"x" * 300000) == (200, b"x" * 300000)
assert ask("PUT", "/pull", data=(b"a" * 1000 for _ in range(100))) == (200, b"a" * 100000)
assert ask("POST", "/refused", data=b"x" * 100)[0] == 413
assert ask("GET", "/panic")[0] == 500
assert ask("GET", "/") == (200, b"hello")
print("done")
"#;
    match run("python3", &["-c", script, &site.url("")]).as_deref() {
        None => {}
        Some("missing\n") => eprintln!("Python has no module `requests`: passed over"),
        printed => assert_eq!(printed, Some("done\n")),
    }
}

/// Slow heads, slow bodies and slow readers of slowhttptest: the service is available throughout.
#[test]
fn slowhttptest() {
    if Command::new("slowhttptest").arg("-h").output().is_err() {
        eprintln!("slowhttptest is not installed: passed over");
        return;
    }
    let site = Site::new("slowhttptest");
    for (mode, path) in [("-H", "/"), ("-B", "/echo"), ("-X", "/long")] {
        let url = site.url(path);
        let arguments = [
            mode, "-c", "200", "-r", "200", "-i", "1", "-l", "4", "-p", "2", "-u", &url,
        ];
        let printed = run("slowhttptest", &arguments).expect("it is there");
        assert!(printed.contains("service available:"), "{mode}: {printed}");
        let last = printed.rsplit("service available:").next();
        assert!(
            last.is_some_and(|last| last.contains("YES")),
            "{mode}: {printed}"
        );
        assert!(
            !printed.contains("service available:   NO"),
            "{mode}: {printed}"
        );
    }
}

/// wrk on many connections: each answer is one.
#[test]
fn wrk() {
    let site = Site::new("wrk");
    let url = site.url("/");
    if let Some(printed) = run("wrk", &["-t", "1", "-c", "32", "-d", "1", &url]) {
        assert!(printed.contains(" requests in "), "{printed}");
        assert!(!printed.contains("Non-2xx"), "{printed}");
        assert!(!printed.contains("Socket errors"), "{printed}");
    }
}

/// The fetch of Node, which keeps connections.
#[test]
fn node() {
    let site = Site::new("node");
    let script = r#"
const base = process.argv[1];
const ask = async (path, options) => {
  const answer = await fetch(base + path, options);
  return answer.status + " " + (await answer.text());
};
const check = (got, wanted) => { if (got !== wanted) throw new Error(got.slice(0, 200)); };
(async () => {
  check(await ask("/"), "200 hello");
  check(await ask("/chunks"), "200 part part part ");
  check(await ask("/echo", { method: "POST", body: "x".repeat(300000) }), "200 " + "x".repeat(300000));
  const stream = new ReadableStream({ start(c) { c.enqueue(new Uint8Array(5)); c.close(); } });
  check(await ask("/pull", { method: "PUT", body: stream, duplex: "half" }), "200 \0\0\0\0\0");
  check((await ask("/none")).slice(0, 3), "404");
  console.log("done");
})().catch((error) => { console.error(error); process.exit(1); });
"#;
    let has_fetch = run("node", &["-p", "typeof fetch"]);
    if has_fetch.is_none_or(|kind| kind != "function\n") {
        eprintln!("node has no fetch: passed over");
        return;
    }
    let base = site.url("");
    let printed = run("node", &["-e", script, &base]).expect("node is there");
    assert_eq!(printed, "done\n");
}

/// A script beside this file.
fn script(name: &str) -> String {
    format!("{}/tests/http_clients/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// undici's own client, which pipelines requests: Node's fetch does not.
#[test]
fn undici() {
    let site = Site::new("undici");
    let Some(folder) = run("npm", &["root", "--global"]) else {
        return;
    };
    let mut node = Command::new("node");
    node.env("NODE_PATH", folder.trim());
    let has_it = node.args(["-e", "require('undici')"]).output();
    if !has_it.is_ok_and(|output| output.status.success()) {
        eprintln!("node has no module undici: passed over");
        return;
    }
    let mut node = Command::new("node");
    let ran = node
        .env("NODE_PATH", folder.trim())
        .args([script("undici.js"), site.url("")])
        .output()
        .expect("node is there");
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "done\n", "{errors}");
}

/// Go's net/http, with its keep-alive and 100-continue.
#[test]
fn go() {
    let site = Site::new("go");
    if run("go", &["version"]).is_none() {
        return;
    }
    let ran = Command::new("go")
        .args(["run", &script("client.go"), &site.url("")])
        .env("GO111MODULE", "off")
        .env("GOFLAGS", "")
        .env("GOCACHE", site.folder.join("go-cache"))
        .output()
        .expect("go is there");
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "done\n", "{errors}");
}
