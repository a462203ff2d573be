//! One thread of a running server is stopped, in each role, as a debugger stops it or an overloaded
//! host does: the others go on as far as the promises say, and when it runs again nothing was lost.
//!
//! This test has unsafe code: a single thread of another process can be stopped only by `ptrace`,
//! which nobody wraps for us.

#![cfg(target_os = "linux")]

use std::{
    fs,
    io::{self, Read, Write},
    net::TcpStream,
    process::Command,
    ptr,
};

use crate::support::{
    bounded,
    example::{echo, expect_echo, signal, Server},
    wait_until,
};

/// A follower that sleeps and is nobody's standby does not matter at all.
#[test]
fn stopped_follower_is_not_missed() {
    bounded(|| {
        let mut pool = Running::start("adaptive", "newest");
        let Some(stopped) = pool.stop(Doing::Sleeps) else {
            return;
        };
        pool.serve_everyone(50);
        drop(stopped);
        pool.serve_everyone(50);
        pool.end();
    });
}

/// The standby watches over surprises. While it can't, everything that is no surprise goes on.
#[test]
fn stopped_standby_is_not_missed_by_short_requests() {
    bounded(|| {
        let mut pool = Running::start("adaptive", "newest");
        let Some(stopped) = pool.stop(Doing::Ticks) else {
            return;
        };
        pool.serve_everyone(50);
        drop(stopped);
        pool.serve_everyone(50);
        pool.end();
    });
}

/// The leader is stopped while it waits. Nobody else may lead (L1), though the followers can't know
/// whether it will ever run again: requests wait, and the pool is as quiet as an idle one. Then the
/// leader goes on, its wait interrupted, and everything is answered.
#[test]
fn stopped_leader_keeps_the_lead() {
    bounded(|| {
        for wake in ["adaptive", "eager"] {
            let mut pool = Running::start(wake, "newest");
            let Some(stopped) = pool.stop(Doing::Waits) else {
                return;
            };
            pool.ask_all(b"1");
            pool.wait_until_all_sleep_but(&stopped);
            pool.assert_no_answer();
            drop(stopped);
            pool.expect_all(b"1");
            pool.serve_everyone(50);
            pool.end();
        }
    });
}

/// A thread is stopped inside a handler, at its first read: it has promoted (L3), so the others
/// lead and serve everyone else, in every order and under both policies; the adaptive pool finds
/// out by a look. Its own connection waits for it (H1), and is answered when it goes on.
#[test]
fn stopped_owner_holds_up_its_own_connection_only() {
    bounded(|| {
        for wake in ["adaptive", "eager"] {
            for order in ["newest", "oldest", "priority", "system"] {
                let mut pool = Running::start(wake, order);
                let Some(stopped) = pool.stop(Doing::Waits) else {
                    return;
                };
                pool.clients[0].write_all(b"1").unwrap();
                stopped.go_on_until(libc::SYS_recvfrom);
                for _ in 0..20 {
                    pool.clients[1..]
                        .iter_mut()
                        .for_each(|client| expect_echo(client, b"2"));
                }
                assert!(has_no_answer(&pool.clients[0]));
                drop(stopped);
                expect(&mut pool.clients[0], b"1");
                pool.serve_everyone(20);
                pool.end();
            }
        }
    });
}

/// A follower is elected while it is stopped. In the textbook's form the offer is for it alone: of
/// two threads the other one finishes its event and sleeps, and nobody leads. That is the price of
/// "no barging", and nothing is lost by it: the elected thread leads as soon as it runs, and
/// everything is answered.
#[test]
fn offer_waits_for_a_stopped_thread() {
    bounded(|| {
        let mut pool = Running::with_threads(2, "eager", "newest");
        let Some(stopped) = pool.stop(Doing::Sleeps) else {
            return;
        };
        expect_echo(&mut pool.clients[0], b"0");
        pool.wait_until_all_sleep_but(&stopped);
        pool.ask_all(b"1");
        pool.wait_until_all_sleep_but(&stopped);
        pool.assert_no_answer();
        drop(stopped);
        pool.expect_all(b"1");
        pool.serve_everyone(20);
        pool.end();
    });
}

/// Under the adaptive wake nobody relies on the one that was called: with every follower stopped,
/// called or not, the one thread that runs takes each lead back and serves everyone.
#[test]
fn one_running_thread_suffices() {
    bounded(|| {
        let mut pool = Running::start("adaptive", "newest");
        let mut stopped = Vec::new();
        for _ in 1..THREADS {
            let Some(another) = pool.stop_another(&stopped) else {
                return;
            };
            stopped.push(another);
        }
        pool.serve_everyone(50);
        drop(stopped);
        pool.serve_everyone(50);
        pool.end();
    });
}

const THREADS: usize = 4;

/// What a thread of the server does, as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    /// It waits in the handle set: it leads.
    Waits,
    /// It sleeps with a timer: it is the standby.
    Ticks,
    /// It sleeps without one: it is parked, or the standby of an idle pool.
    Sleeps,
    Other,
}

impl Doing {
    fn of(call: Call) -> Self {
        let waits = [libc::SYS_epoll_pwait];
        #[cfg(target_arch = "x86_64")]
        let waits = [waits[0], libc::SYS_epoll_wait];
        match call {
            Call { number, .. } if waits.contains(&number) => Self::Waits,
            // A sleep with a timer that was interrupted goes on under this name.
            Call { number, .. } if number == libc::SYS_restart_syscall => Self::Ticks,
            Call { number, fourth } if number == libc::SYS_futex => match fourth {
                0 => Self::Sleeps,
                _ => Self::Ticks,
            },
            _ => Self::Other,
        }
    }
}

/// The system call that a thread is in.
#[derive(Clone, Copy)]
struct Call {
    number: libc::c_long,
    /// Its fourth argument: of a futex, where its time-out is.
    fourth: u64,
}

/// The server in a process of its own, and its clients.
struct Running {
    /// `None` once it has ended gracefully.
    server: Option<Server>,
    clients: Vec<TcpStream>,
    tasks: Vec<Task>,
    adaptive: bool,
}

impl Running {
    fn start(wake: &str, order: &str) -> Self {
        Self::with_threads(THREADS, wake, order)
    }

    fn with_threads(threads: usize, wake: &str, order: &str) -> Self {
        let server = Server::start(
            Command::new(echo())
                .args(["--listen", "127.0.0.1:0"])
                .args(["--threads", &threads.to_string()])
                .args(["--wake", wake, "--order", order]),
        );
        let mut running = Self {
            clients: (0..3).map(|_| server.connect()).collect(),
            tasks: Vec::new(),
            adaptive: wake == "adaptive",
            server: Some(server),
        };
        // A thread is named by itself, after it was started.
        wait_until(|| {
            running.tasks = running.named_tasks();
            running.tasks.len() == threads
        });
        running.serve_everyone(1);
        running
    }

    /// The threads of the pool.
    fn named_tasks(&self) -> Vec<Task> {
        let process = self.server.as_ref().unwrap().id();
        let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
        tasks
            .map(|task| task.unwrap())
            .filter(|task| {
                let name = fs::read_to_string(task.path().join("comm"));
                name.is_ok_and(|name| name.starts_with("echo-"))
            })
            .map(|task| Task {
                process,
                number: task.file_name().to_str().unwrap().parse().unwrap(),
            })
            .collect()
    }

    /// Stops a thread while it does this. `None`: that is not permitted here.
    fn stop(&mut self, role: Doing) -> Option<Stopped> {
        self.stop_one(|pool, task| {
            // While a standby ticks, whoever sleeps without a timer is parked.
            let standby_is_known = pool.tasks.iter().any(|task| task.doing() == Doing::Ticks);
            let parked = standby_is_known || !pool.adaptive;
            task.doing() == role && (role != Doing::Sleeps || parked)
        })
    }

    /// Stops a follower that is not stopped yet.
    fn stop_another(&mut self, stopped: &[Stopped]) -> Option<Stopped> {
        self.stop_one(|_, task| {
            let follows = matches!(task.doing(), Doing::Sleeps | Doing::Ticks);
            follows && stopped.iter().all(|stopped| stopped.task != task)
        })
    }

    /// Stops a thread of which `fits` holds, before and after.
    fn stop_one(&mut self, fits: impl Fn(&Self, Task) -> bool) -> Option<Stopped> {
        let mut found = Ok(None);
        wait_until(|| {
            // An event keeps the standby ticking for a while.
            expect_echo(&mut self.clients[0], b"awake");
            found = self.try_to_stop(&fits);
            !matches!(found, Ok(None))
        });
        found.unwrap_or_else(|error| {
            eprintln!("skipped: a thread can't be stopped here: {error}");
            None
        })
    }

    /// `Ok(None)`: nobody fits at the moment. `Err`: it is not permitted.
    fn try_to_stop(&self, fits: impl Fn(&Self, Task) -> bool) -> io::Result<Option<Stopped>> {
        self.tasks[0].look()?;
        let Some(task) = self.tasks.iter().find(|task| fits(self, **task)) else {
            return Ok(None);
        };
        let stopped = Stopped::stop(*task)?;
        Ok(Some(stopped).filter(|stopped| fits(self, stopped.task)))
    }

    /// Every client sends so many requests, one after the other, and all are answered.
    fn serve_everyone(&mut self, times: u8) {
        for time in 0..times {
            self.ask_all(&[time]);
            self.expect_all(&[time]);
        }
    }

    fn ask_all(&mut self, bytes: &[u8]) {
        for client in &mut self.clients {
            client.write_all(bytes).unwrap();
        }
    }

    fn expect_all(&mut self, bytes: &[u8]) {
        self.clients
            .iter_mut()
            .for_each(|client| expect(client, bytes));
    }

    /// Waits until every other thread sleeps without a timer: nothing will happen any more.
    fn wait_until_all_sleep_but(&self, stopped: &Stopped) {
        let mut others = self.tasks.clone();
        others.retain(|task| *task != stopped.task);
        wait_until(|| others.iter().all(|task| task.doing() == Doing::Sleeps));
    }

    fn assert_no_answer(&self) {
        assert!(self.clients.iter().all(has_no_answer));
    }

    /// Everything that was asked is answered, and it ends gracefully.
    fn end(mut self) {
        let server = self.server.take().unwrap();
        signal("TERM", server.id());
        let output = server.output();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("everything was finished"), "{said}");
    }
}

impl Drop for Running {
    /// After a failure, or if this was skipped.
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            signal("KILL", server.id());
            server.output();
        }
    }
}

fn expect(client: &mut TcpStream, bytes: &[u8]) {
    let mut answer = vec![0; bytes.len()];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, bytes);
}

fn has_no_answer(client: &TcpStream) -> bool {
    client.set_nonblocking(true).unwrap();
    let told = client.peek(&mut [0]);
    client.set_nonblocking(false).unwrap();
    told.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// A thread of the server, as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Task {
    process: u32,
    number: i32,
}

impl Task {
    fn doing(self) -> Doing {
        self.call().map_or(Doing::Other, Doing::of)
    }

    /// Which system call it is in, in the kernel's words.
    fn look(self) -> io::Result<String> {
        let Self { process, number } = self;
        fs::read_to_string(format!("/proc/{process}/task/{number}/syscall"))
    }

    /// `None`: it is in no system call.
    fn call(self) -> Option<Call> {
        let text = self.look().unwrap();
        let mut words = text.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let fourth = words.nth(3)?.strip_prefix("0x")?;
        let fourth = u64::from_str_radix(fourth, 16).ok()?;
        Some(Call { number, fourth })
    }
}

/// A thread that does not run as long as this lives.
struct Stopped {
    task: Task,
}

impl Stopped {
    fn stop(task: Task) -> io::Result<Self> {
        request(libc::PTRACE_SEIZE, task)?;
        let stopped = Self { task };
        request(libc::PTRACE_INTERRUPT, task)?;
        wait_until(|| has_stopped(task));
        Ok(stopped)
    }

    /// Lets it run to the beginning of this system call.
    fn go_on_until(&self, number: libc::c_long) {
        for _ in 0..100 {
            request(libc::PTRACE_SYSCALL, self.task).unwrap();
            wait_until(|| has_stopped(self.task));
            if self.task.call().is_some_and(|call| call.number == number) {
                return;
            }
        }
        panic!("it does not come to the system call {number}");
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = request(libc::PTRACE_DETACH, self.task);
    }
}

/// One of the requests to the kernel that have no arguments.
fn request(what: libc::c_uint, task: Task) -> io::Result<()> {
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: the requests made here use neither address nor data, so the kernel touches no memory
    // of this process; what they do to the other one can't break any rule of this one.
    let told = unsafe { libc::ptrace(what, task.number, none, none) };
    match told {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Whether the kernel has a new stop of this thread to tell.
fn has_stopped(task: Task) -> bool {
    let mut status = 0;
    // SAFETY: `status` is valid for writes, and lives until the call returns.
    let told = unsafe { libc::waitpid(task.number, &mut status, libc::__WALL | libc::WNOHANG) };
    assert!(told >= 0, "{}", io::Error::last_os_error());
    told == task.number && libc::WIFSTOPPED(status)
}
