//! Values that panic when they are dropped, and a table of places where that happens.

use std::{
    cell::Cell,
    env, error, fmt,
    io::{self, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
    process::Command,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc,
    },
};

use paceline::Pool;

use crate::support::{bounded, name_of, wait_until, LONG};

/// A place where values of the user's are dropped.
pub type Row = (&'static str, fn(&Field));

/// Runs each row of the table in a process of its own, which must survive. That runs the test
/// called `name` again, which is in this module.
pub fn each_survives(module: &str, name: &str, table: &'static [Row]) {
    const CHILD: &str = "PACELINE_TEST_CHILD";
    if let Ok(row) = env::var(CHILD) {
        let (_, run) = table[row.parse::<usize>().unwrap()];
        return bounded(move || run(&Field::default()));
    }
    let (test, mut died) = (name_of(module, name), Vec::new());
    for (number, (row, _)) in table.iter().enumerate() {
        let mut child = Command::new(env::current_exe().unwrap());
        let child = child.args(["--exact", &test, "--nocapture"]);
        let child = child.env(CHILD, number.to_string());
        let output = child.env("RUST_BACKTRACE", "0").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() || !said.contains("1 passed") {
            let said = String::from_utf8_lossy(&output.stderr);
            died.push(format!("{row}: {}\n{said}", output.status));
        }
    }
    let count = died.len();
    assert!(died.is_empty(), "{count} rows died:\n{}", died.join("\n"));
}

/// Panics when it is dropped, and counts that.
pub struct Grenade(Arc<AtomicUsize>);

impl Drop for Grenade {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("drop fails");
    }
}

impl Grenade {
    /// So that a closure owns it.
    pub fn touch(&self) {}
}

impl fmt::Debug for Grenade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Grenade")
    }
}

impl fmt::Display for Grenade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an error whose drop panics")
    }
}

impl error::Error for Grenade {}

/// Hands out grenades, and knows how many have gone off.
#[derive(Default)]
pub struct Field {
    handed_out: Cell<usize>,
    gone_off: Arc<AtomicUsize>,
}

impl Field {
    pub fn grenade(&self) -> Grenade {
        self.handed_out.set(self.handed_out.get() + 1);
        Grenade(Arc::clone(&self.gone_off))
    }

    /// Waits until all of them have gone off.
    pub fn wait(&self) {
        wait_until(|| self.gone_off.load(Ordering::SeqCst) == self.handed_out.get());
    }
}

/// A pool with one thread.
pub fn pool() -> Pool {
    Pool::builder().threads(1).build().unwrap()
}

/// The pool still serves: its thread is alive.
pub fn check_alive(pool: &Pool) {
    let (sender, done) = mpsc::channel();
    pool.post(move |_| sender.send(()).unwrap()).unwrap();
    done.recv_timeout(LONG).unwrap();
}

/// Keeps the thread of the pool inside of a post until what this returns is dropped.
pub fn keep_busy(pool: &Pool) -> mpsc::Sender<()> {
    let (go, gate) = mpsc::channel::<()>();
    let (sender, done) = mpsc::channel();
    pool.post(move |_| {
        sender.send(()).unwrap();
        let _ = gate.recv_timeout(LONG);
    })
    .unwrap();
    done.recv_timeout(LONG).unwrap();
    go
}

/// A source whose drop panics.
#[derive(Debug)]
pub struct Explosive<S> {
    pub stream: S,
    pub grenade: Grenade,
}

impl<S: AsFd> AsFd for Explosive<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Read for &Explosive<TcpStream> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.stream).read(buffer)
    }
}

impl Write for &Explosive<TcpStream> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
