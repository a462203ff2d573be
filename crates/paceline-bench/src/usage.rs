//! What a server and its client use of the machine, read from /proc at both ends of a stretch of time.
//!
//! ```text
//!  begin: switches, then times | the stretch | end: times, then switches and memory
//! ```
//!
//! The times are read next to the stretch, so that what the server does while the rest is read counts little.
//!
//! How exact they are:
//! - The server's processor time is the sum of `task/*/schedstat`: nanoseconds, brought up to date by the kernel at
//!   every switch and at every tick (4 ms at 250 Hz) of a thread that runs on. A thread that ended takes its part
//!   with it. `stat` of the process keeps that part, but in hundredths of a second, twice (user and system): where it
//!   shows more than the sum by more than its own error, it is taken instead.
//! - Switches are those of threads that live at the end; a thread that ended took its count with it.
//! - The client's processor time is exact: the clock of its own process.
//! - What others used is a difference of hundredths of a second: over 3 s it is known to about 0.02 cores. The kernel
//!   counts by ticks which core was busy. Where it keeps the time of interrupts apart from that of the threads they
//!   interrupt (`IRQ_TIME_ACCOUNTING`), those of the two count as foreign.

use std::{collections::HashMap, fs, io, time::Instant};

use rustix::time::{clock_gettime, ClockId};

/// The unit of `stat`, in seconds. The kernel promises it on all architectures we run on.
const TICK: f64 = 0.01;

/// How far `stat` of a process is off: user and system time are cut off to whole ticks, at both ends.
const ERROR_OF_STAT: f64 = 2.0 * TICK;

/// What was used from one sample to another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// Seconds of processor time of the server.
    pub(crate) server_cpu: f64,
    /// The server's voluntary switches.
    pub(crate) voluntary: u64,
    /// The server's involuntary switches.
    pub(crate) involuntary: u64,
    /// Seconds of processor time of this process.
    pub(crate) client_cpu: f64,
    /// Cores, in the mean, that were busy or stolen, and with neither of the two.
    pub(crate) foreign: f64,
    /// The server's resident memory at the end, in bytes.
    pub(crate) memory: u64,
}

impl Usage {
    /// Adds what was used later, in a stretch that is this share of both.
    pub(crate) fn add(&mut self, later: &Self, share: f64) {
        self.server_cpu += later.server_cpu;
        self.voluntary += later.voluntary;
        self.involuntary += later.involuntary;
        self.client_cpu += later.client_cpu;
        self.foreign += (later.foreign - self.foreign) * share;
        self.memory = later.memory;
    }
}

/// What was used up to a point in time.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Of the server.
    switches: Switches,
    /// The server's resident memory, in bytes.
    memory: u64,
    /// Of all.
    times: Times,
}

impl Sample {
    /// The sample at the beginning of a stretch. Without a server, its part is 0.
    ///
    /// # Errors
    /// The server is gone, or /proc can't be read.
    pub(crate) fn begin(server: Option<u32>) -> io::Result<Self> {
        let (switches, memory) = at_leisure(server)?;
        let times = Times::now(server)?;
        Ok(Self {
            switches,
            memory,
            times,
        })
    }

    /// The sample at the end of a stretch.
    ///
    /// # Errors
    /// The server is gone, or /proc can't be read.
    pub(crate) fn end(server: Option<u32>) -> io::Result<Self> {
        let times = Times::now(server)?;
        let (switches, memory) = at_leisure(server)?;
        Ok(Self {
            switches,
            memory,
            times,
        })
    }

    /// What was used since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Usage {
        let (now, then) = (&self.times, &earlier.times);
        let server_cpu = now.server_since(then);
        let client_cpu = now.client - then.client;
        let seconds = (now.at - then.at).as_secs_f64();
        let others = now.busy - then.busy - server_cpu - client_cpu;
        let (voluntary, involuntary) = self.switches.since(&earlier.switches);
        Usage {
            server_cpu,
            voluntary,
            involuntary,
            client_cpu,
            foreign: (others / seconds).max(0.0),
            memory: self.memory,
        }
    }
}

/// Processor times, in seconds.
#[derive(Clone, Debug)]
struct Times {
    /// When they were read.
    at: Instant,
    /// Each thread of the server that lives.
    threads: HashMap<u32, f64>,
    /// The server with all threads that ever were, to the tick.
    server: f64,
    /// This process.
    client: f64,
    /// All cores, busy or stolen.
    busy: f64,
}

impl Times {
    /// The times now.
    fn now(server: Option<u32>) -> io::Result<Self> {
        Ok(Self {
            at: Instant::now(),
            busy: busy(&fs::read_to_string("/proc/stat")?)?,
            threads: per_thread(server, "schedstat", time_of_thread)?,
            server: server.map_or(Ok(0.0), time_of_process)?,
            client: own_time(),
        })
    }

    /// Seconds that the server used since `earlier`.
    fn server_since(&self, earlier: &Self) -> f64 {
        let used =
            |(thread, time): (&u32, &f64)| time - earlier.threads.get(thread).unwrap_or(&0.0);
        let exact = self
            .threads
            .iter()
            .map(used)
            .fold(0.0, |sum, time| sum + time);
        let rough = self.server - earlier.server;
        if rough > exact + ERROR_OF_STAT {
            rough
        } else {
            exact
        }
    }
}

/// The switches of each thread: voluntary and involuntary.
#[derive(Clone, Debug, Default)]
struct Switches(HashMap<u32, (u64, u64)>);

impl Switches {
    /// How many there were since `earlier`.
    fn since(&self, earlier: &Self) -> (u64, u64) {
        let mut sum = (0, 0);
        for (thread, (voluntary, involuntary)) in &self.0 {
            let then = earlier.0.get(thread).copied().unwrap_or_default();
            sum.0 += voluntary.saturating_sub(then.0);
            sum.1 += involuntary.saturating_sub(then.1);
        }
        sum
    }
}

/// What need not be read at once: switches, and resident memory.
fn at_leisure(server: Option<u32>) -> io::Result<(Switches, u64)> {
    let switches = Switches(per_thread(server, "status", switches_of)?);
    let Some(pid) = server else {
        return Ok((switches, 0));
    };
    let status = read_of(pid, "status")?;
    Ok((switches, field(&status, "VmRSS:").unwrap_or(0) * 1024))
}

/// Reads `file` of each thread of the server. Threads that end meanwhile are left out.
fn per_thread<T>(
    server: Option<u32>,
    file: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> io::Result<HashMap<u32, T>> {
    let Some(pid) = server else {
        return Ok(HashMap::new());
    };
    let folder = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&folder).map_err(|error| unreadable(pid, &error))?;
    let mut found = HashMap::new();
    for thread in threads.flatten() {
        let name = thread.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        let text = fs::read_to_string(thread.path().join(file));
        if let (Some(number), Ok(text)) = (number, text) {
            found.extend(parse(&text).map(|value| (number, value)));
        }
    }
    Ok(found)
}

/// The text of a file of the server.
fn read_of(pid: u32, file: &str) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}")).map_err(|error| unreadable(pid, &error))
}

/// Says of which process it was.
fn unreadable(pid: u32, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("process {pid}, the server, can't be looked at: {error}"),
    )
}

/// Seconds, from the nanoseconds at the front of `schedstat`.
fn time_of_thread(schedstat: &str) -> Option<f64> {
    let nanos: u64 = schedstat.split_whitespace().next()?.parse().ok()?;
    Some(nanos as f64 / 1e9)
}

/// Voluntary and involuntary switches, from `status`.
fn switches_of(status: &str) -> Option<(u64, u64)> {
    let voluntary = field(status, "voluntary_ctxt_switches:")?;
    Some((voluntary, field(status, "nonvoluntary_ctxt_switches:")?))
}

/// The number behind `name` at the front of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Seconds of processor time of a process, with threads that ended.
fn time_of_process(pid: u32) -> io::Result<f64> {
    let stat = read_of(pid, "stat")?;
    user_and_system(&stat).ok_or_else(|| not_understood("stat of the server"))
}

/// User and system time, in seconds, from `stat` of a process.
fn user_and_system(stat: &str) -> Option<f64> {
    // The name, in parentheses, may hold anything; what follows begins with field 3.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 * TICK)
}

/// Seconds in which cores were busy or stolen, from /proc/stat.
fn busy(stat: &str) -> io::Result<f64> {
    let all = stat
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("cpu "));
    let fields: Vec<u64> = all
        .unwrap_or_default()
        .split_whitespace()
        .flat_map(str::parse)
        .collect();
    // Guests, behind steal, are counted in user already; idle and waiting for a disk is not busy.
    match fields[..] {
        [user, nice, system, _idle, _waiting, interrupts, soft, steal, ..] => {
            Ok((user + nice + system + interrupts + soft + steal) as f64 * TICK)
        }
        _ => Err(not_understood("/proc/stat")),
    }
}

/// Seconds of processor time of this process.
fn own_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A file is not as it should be.
fn not_understood(file: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{file} is not understood"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{hint, process, thread, time::Duration};

    /// Uses the processor for so long.
    fn compute(time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            hint::spin_loop();
        }
    }

    #[test]
    fn files_of_proc_are_understood() {
        let stat = "7 (a (name) 1 2) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 9 9 20 0 1 0 5 6 7";
        assert_eq!(user_and_system(stat), Some(3.0));
        assert_eq!(user_and_system("7 (a)"), None);
        assert_eq!(
            busy("cpu  100 20 30 999 999 4 40 6 0 0\ncpu0 1").unwrap(),
            2.0
        );
        assert!(busy("intr 1 2").is_err());
        assert_eq!(time_of_thread("2500000000 7 8\n"), Some(2.5));
        let status = "Name:\tx\nVmRSS:\t  12 kB\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t4\n";
        assert_eq!(switches_of(status), Some((3, 4)));
        assert_eq!(field(status, "VmRSS:"), Some(12));
    }

    #[test]
    fn a_process_sees_what_it_used_itself() {
        let pid = Some(process::id());
        let before = Sample::begin(pid).unwrap();
        compute(Duration::from_millis(50));
        thread::sleep(Duration::from_millis(5));
        let used = Sample::end(pid).unwrap().since(&before);
        // Others may take the core away for a while.
        assert!(
            used.client_cpu > 0.005 && used.server_cpu > 0.004,
            "{used:?}"
        );
        assert!(used.voluntary > 0 && used.memory > 0, "{used:?}");
    }

    /// The threads that a server starts for a while take their exact time with them; the rough one stays.
    #[test]
    fn the_time_of_threads_that_ended_is_not_lost() {
        let pid = Some(process::id());
        let before = Sample::begin(pid).unwrap();
        let begin = own_time();
        thread::spawn(|| {
            let begin = own_time();
            while own_time() - begin < 0.2 {
                hint::spin_loop();
            }
        })
        .join()
        .unwrap();
        let spent = own_time() - begin;
        let used = Sample::end(pid).unwrap().since(&before);
        assert!(
            used.server_cpu > spent - 3.0 * ERROR_OF_STAT,
            "{used:?} of {spent}"
        );
    }

    #[test]
    fn without_a_server_its_part_is_nothing() {
        let before = Sample::begin(None).unwrap();
        let used = Sample::end(None).unwrap().since(&before);
        assert_eq!((used.server_cpu, used.memory, used.voluntary), (0.0, 0, 0));
    }

    #[test]
    fn a_server_that_is_gone_is_named() {
        let error = Sample::begin(Some(u32::MAX)).unwrap_err();
        assert!(error.to_string().contains(&u32::MAX.to_string()), "{error}");
    }
}
