//! A web application: routes with parameters, JSON, a form, files, and uploads in three ways.
//!
//! ```text
//! cargo run --release -p paceline-server --example http -- --files docs
//! curl http://127.0.0.1:8080/notes
//! curl -d text=hello http://127.0.0.1:8080/notes
//! curl -T FILE http://127.0.0.1:8080/upload/name
//! ```
//!
//! ```text
//!   GET  /notes           JSON                 Response::json
//!   POST /notes           a form               req.form()
//!   GET  /notes/{number}  400 or 404           req.param()
//!   PUT  /upload/{name}   counted in pieces    Body::Push
//!   POST /lines           read as a stream     Body::Pull
//!   GET  /files/..        a folder             Router::files
//! ```

mod support;

use std::{
    io::{self, BufRead, BufReader},
    process::ExitCode,
    sync::{Mutex, PoisonError},
};

use lexopt::{Arg, Parser, ValueExt};
use paceline_server::{
    http::{Body, Error, Push, Request, Response, Result, Router},
    Server,
};

const HELP: &str = "\
A web application with notes, files and uploads.

usage: http [options]

  --listen ADDR    where to listen (default 127.0.0.1:8080; port 0 lets the system choose)
  --files FOLDER   serve the files of this folder under /files
  --metrics ADDR   serve /metrics, /healthz and /readyz there
  --page ADDR      serve the live page of the server's threads there (default: a free port)
  --threads N      how many threads serve (default: four per core)
  --help           this text

It prints `listening on ADDR` when it is ready, and where the page is. Ctrl-C or SIGTERM ends it gracefully, and it prints a
report.";

/// The most notes, so that a stranger can't use up the memory.
const MOST_NOTES: usize = 1000;

const PAGE: &str = "<!doctype html><title>notes</title><form method=post action=/notes>\
    <input name=text autofocus><button>add</button></form><p><a href=/notes>all notes</a>\n";

/// The state of the application: what all handlers share.
#[derive(Default)]
struct App {
    notes: Mutex<Vec<String>>,
}

fn router() -> Router<App> {
    Router::new(App::default())
        .get("/", |_, _| Response::html(PAGE))
        .get("/notes", |app, _| {
            let notes = app.notes.lock().unwrap_or_else(PoisonError::into_inner);
            Response::json(&*notes)
        })
        .post("/notes", add_note)
        .limit(16 * 1024)
        .get("/notes/{number}", note)
        .put("/upload/{name}", |_, req| Upload::new(req))
        .body(Body::Push)
        .limit(1 << 30)
        .post("/lines", count_lines)
        .body(Body::Pull)
        .limit(1 << 30)
        .after(|_, req, response| {
            if let Some(error) = response.error().and_then(Error::cause) {
                eprintln!("{} {:?}: {error}", req.id(), req.path());
            }
        })
}

fn add_note(app: &App, req: &mut Request<'_>) -> Result<Response> {
    let text = req.form()?.into_iter().find(|(name, _)| name == "text");
    let (_, text) = text.ok_or_else(|| Error::new(400, "the form has no field `text`"))?;
    let mut notes = app.notes.lock().unwrap_or_else(PoisonError::into_inner);
    if notes.len() >= MOST_NOTES {
        return Err(Error::new(507, "there are too many notes"));
    }
    notes.push(text);
    Ok(Response::see_other(&format!("/notes/{}", notes.len() - 1)))
}

fn note(app: &App, req: &mut Request<'_>) -> Result<String> {
    let number: usize = req.param("number")?; // 400 if it is no number
    let notes = app.notes.lock().unwrap_or_else(PoisonError::into_inner);
    let note = notes.get(number).cloned();
    note.ok_or_else(|| Error::new(404, "there is no such note"))
}

/// An upload that is counted piece by piece: a slow client holds no thread, and no memory.
struct Upload {
    name: Result<String>,
    bytes: u64,
}

impl Upload {
    fn new(req: &Request<'_>) -> Self {
        Self {
            name: req.param("name"),
            bytes: 0,
        }
    }
}

impl Push for Upload {
    fn piece(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn end(self: Box<Self>) -> Result<Response> {
        let text = format!("{}: {} bytes\n", self.name?, self.bytes);
        Ok(Response::text(text))
    }
}

/// Reads the body as a stream, as a parser of another library would.
fn count_lines(_: &App, req: &mut Request<'_>) -> Result<String> {
    let mut lines = 0;
    for line in BufReader::new(req.stream()).split(b'\n') {
        line?;
        lines += 1;
    }
    Ok(format!("{lines} lines\n"))
}

fn main() -> ExitCode {
    support::main("http", HELP, Options::parse, serve)
}

fn serve(options: Options) -> io::Result<()> {
    let mut app = router();
    if let Some(folder) = options.files {
        app = app.files("/files", folder);
    }
    let mut server = Server::http(options.listen.as_str(), app);
    if let Some(threads) = options.threads {
        server = server.threads(threads);
    }
    // The board names on the page which route a thread is stuck in.
    server = server.page(options.page).pool(|pool| pool.board(true));
    if let Some(address) = options.metrics {
        server = server.server(|server| server.metrics(address));
    }
    server.run_with(support::announce)
}

struct Options {
    listen: String,
    files: Option<String>,
    metrics: Option<String>,
    page: String,
    threads: Option<usize>,
}

impl Options {
    fn parse(parser: &mut Parser) -> std::result::Result<Self, lexopt::Error> {
        let mut options = Self {
            listen: "127.0.0.1:8080".to_owned(),
            files: None,
            metrics: None,
            page: "127.0.0.1:0".to_owned(),
            threads: None,
        };
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("listen") => options.listen = parser.value()?.string()?,
                Arg::Long("files") => options.files = Some(parser.value()?.string()?),
                Arg::Long("page") => options.page = parser.value()?.string()?,
                Arg::Long("metrics") => options.metrics = Some(parser.value()?.string()?),
                Arg::Long("threads") => {
                    options.threads = Some(support::count(parser, "--threads")?)
                }
                other => return Err(other.unexpected()),
            }
        }
        Ok(options)
    }
}
