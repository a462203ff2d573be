//! The page in a browser: Chromium runs it, and prints what it has become. Without Chromium the test
//! says that it is skipped.

use std::{
    env, fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use paceline::{
    observe::{Role, ThreadReport},
    Pool,
};
use paceline_server::page;

use crate::{
    server,
    viewer::{number_in, wait_until},
};

/// The browser needs seconds on a busy computer.
const HANG: Duration = Duration::from_secs(120);

fn chromium() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let paths = env::var_os("PATH")?;
    let all = env::split_paths(&paths).flat_map(|folder| names.map(|name| folder.join(name)));
    all.into_iter().find(|path| path.is_file())
}

/// What the page has become after some reports.
struct Shown {
    document: String,
    /// What its script has said to the console.
    console: Vec<String>,
}

/// Ends the browser, whatever becomes of the test, and removes its folder.
struct Browser {
    child: Child,
    folder: PathBuf,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Lets the browser show the page, until it has had four reports.
fn show(chromium: &Path, address: SocketAddr, name: &str) -> Shown {
    let folder = env::temp_dir().join(format!("paceline-page-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let child = Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
        ])
        .args([
            "--no-first-run",
            "--disable-background-networking",
            "--disable-sync",
        ])
        .args(["--disable-component-update", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", folder.display()))
        // The clock of the page stops while it waits for the network.
        .args(["--virtual-time-budget=60000", "--dump-dom"])
        .arg(format!("http://{address}/?frames=4"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut browser = Browser { child, folder };
    let document = read_all(browser.child.stdout.take().unwrap());
    let messages = read_all(browser.child.stderr.take().unwrap());
    let since = Instant::now();
    while browser.child.try_wait().unwrap().is_none() {
        assert!(since.elapsed() < HANG, "the browser hangs");
        thread::sleep(Duration::from_millis(20));
    }
    let messages = messages.recv_timeout(HANG).unwrap();
    let is_console = |line: &&str| line.contains("CONSOLE");
    Shown {
        document: document.recv_timeout(HANG).unwrap(),
        console: messages
            .lines()
            .filter(is_console)
            .map(str::to_owned)
            .collect(),
    }
}

fn read_all(mut from: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = from.read_to_end(&mut bytes);
        // The test may have failed meanwhile.
        let _ = sender.send(
            read.map(|_| String::from_utf8_lossy(&bytes).into_owned())
                .unwrap(),
        );
    });
    receiver
}

/// What follows `key` up to `end`.
fn between<'t>(text: &'t str, key: &str, end: char) -> &'t str {
    let (_, rest) = text
        .split_once(key)
        .unwrap_or_else(|| panic!("{key} in {text}"));
    &rest[..rest.find(end).unwrap_or(rest.len())]
}

/// The script runs under the policy of the page and says nothing; names are text; the numbers in the
/// document are those of the last report.
#[test]
fn a_browser_shows_the_numbers_of_the_reports() {
    let Some(chromium) = chromium() else {
        println!("skipped: there is no chromium");
        return;
    };
    let server = server().start().unwrap();
    let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    for _ in 0..1234 {
        client.write_all(b"hello\r\n").unwrap();
        client.read_exact(&mut [0; 7]).unwrap();
    }
    let shown = show(&chromium, server.page_addr().unwrap(), "numbers");
    let Shown { document, console } = shown;
    assert_eq!(console, Vec::<String>::new());
    assert!(document.contains("data-settled=\"yes\""), "{document}");
    assert!(document.contains("role=\"status\">serving<"), "{document}");
    assert!(
        document.contains("<td>orders &lt;/script&gt;&lt;b&gt;\"bold\"</td>"),
        "{document}"
    );
    assert!(document.contains("<td>1,234</td>"), "items: {document}");

    let report = between(&document, "data-report=\"", '"').replace("&quot;", "\"");
    let promotions = number_in(&report, "promotions").to_string();
    let cell = between(&document, "<td>promotions</td><td>", '<').replace(',', "");
    assert_eq!(cell, promotions);
    let connections = between(&document, "id=\"t-connections\">", '<');
    assert_eq!(connections, "1");
}

/// A thread whose handler blocks is shown so, also if it began before the page was opened.
#[test]
fn a_browser_shows_a_thread_that_blocks() {
    let Some(chromium) = chromium() else {
        println!("skipped: there is no chromium");
        return;
    };
    let pool = Pool::builder().threads(2).board(true).build().unwrap();
    let page = page(&pool).start().unwrap();
    let (release, released) = mpsc::channel::<()>();
    pool.post(move |cx| cx.blocking(|| released.recv().unwrap()))
        .unwrap();
    // It blocks before anyone looks.
    let is_away = |thread: &ThreadReport| thread.role == Role::Away;
    wait_until(|| pool.inspect().threads().iter().any(is_away));
    let shown = show(&chromium, page.local_addr(), "away");
    assert_eq!(shown.console, Vec::<String>::new());
    let lanes = between(&shown.document, "aria-label=\"What each thread does: ", '"');
    assert!(lanes.contains(" away"), "{lanes}");
    assert!(shown.document.contains("(1 blocked)"), "{}", shown.document);
    release.send(()).unwrap();
}

/// How long the page is watched; `PACELINE_PAGE_SECONDS=600` is the long form.
const WATCHED: f64 = 15.0;

/// A page that keeps what it has shown grows for as long as it is open. Its heap, behind a collection of garbage, is as
/// large at the end as it was early, while the server is loaded as far as a client can.
#[test]
fn the_heap_of_the_page_is_flat() {
    let Some(chromium) = chromium() else {
        println!("skipped: there is no chromium");
        return;
    };
    let seconds = env::var("PACELINE_PAGE_SECONDS").ok();
    let seconds = seconds.map_or(WATCHED, |seconds| seconds.parse().expect("a number"));
    let server = server().start().unwrap();
    let address = server.local_addr().unwrap();
    let is_over = AtomicBool::new(false);
    let folder = env::temp_dir().join(format!("paceline-page-heap-{}", std::process::id()));
    let url = format!("http://{}/", server.page_addr().unwrap());
    let (ran, asked) = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut client = TcpStream::connect(address).unwrap();
            let mut asked = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                client.write_all(b"hello\r\n").unwrap();
                client.read_exact(&mut [0; 7]).unwrap();
                asked += 1;
            }
            asked
        });
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/heap.py");
        let ran = Command::new("python3")
            .arg(script)
            .args([url.as_str(), chromium.to_str().unwrap()])
            .arg(&folder)
            .arg(seconds.to_string())
            .output();
        is_over.store(true, Ordering::Relaxed);
        (ran, load.join().unwrap())
    });
    let _ = fs::remove_dir_all(&folder);
    let Ok(ran) = ran else {
        println!("skipped: there is no python3");
        return;
    };
    if ran.status.code() == Some(77) {
        println!("skipped: Python has no module `websockets`");
        return;
    }
    let (printed, errors) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert!(ran.status.success(), "{errors}");
    let numbers: Vec<u64> = printed
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    println!("{seconds} s, {asked} requests, nodes and sizes of the heap: {numbers:?}");
    let (early, late) = (&numbers[1..5], &numbers[9..]);
    let (early, late) = (early.iter().max().unwrap(), late.iter().min().unwrap());
    assert!(*late < early + early / 4, "it grows: {numbers:?}");
}
