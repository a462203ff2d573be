//! The service that every server offers: a request of 64 bytes, of which the first names the work; the reply
//! is the same 64 bytes.
//!
//! ```text
//!  restore: | rest | room to read into                |     buffer of the thread (or of the connection)
//!  keep:    | request | request | request | rest ...  |
//!           '---- whole: performed, sent back ---'---- kept for the next read
//! ```

use std::{
    hint, thread,
    time::{Duration, Instant},
};

/// The length of a request, and of a reply.
pub(crate) const REQUEST: usize = 64;

/// The length of a buffer: what one read may bring, in every server.
pub(crate) const ROOM: usize = 4096;

/// How long [`Task::Compute`] takes.
const COMPUTATION: Duration = Duration::from_micros(20);

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Nothing: the reply is due at once.
    Nothing,
    /// Computes for about 20 us.
    Compute,
    /// Sleeps for 5 ms.
    SleepLong,
    /// Sleeps for 200 us.
    SleepShort,
}

impl Task {
    /// Every task; its place is its byte.
    pub(crate) const ALL: [Task; 4] = [
        Task::Nothing,
        Task::Compute,
        Task::SleepLong,
        Task::SleepShort,
    ];

    /// The task that a request names. What has no name asks for nothing.
    pub(crate) fn of(request: &[u8]) -> Task {
        let named = request
            .first()
            .and_then(|&byte| Task::ALL.get(usize::from(byte)));
        named.copied().unwrap_or(Task::Nothing)
    }

    /// The task that a line names, by its first character. What has no name asks for nothing.
    pub(crate) fn of_line(line: &[u8]) -> Task {
        let byte = line.first().map(|digit| digit.wrapping_sub(b'0'));
        Task::of(byte.as_slice())
    }

    /// The byte that names it.
    pub(crate) fn byte(self) -> u8 {
        self as u8
    }

    /// Whether the thread that does it sleeps.
    pub(crate) fn blocks(self) -> bool {
        matches!(self, Task::SleepLong | Task::SleepShort)
    }

    /// Does it on this thread. `steps` is what 20 us take on this machine; see [`steps_of_20us`].
    pub(crate) fn perform(self, steps: u32) {
        match self {
            Task::Nothing => {}
            Task::Compute => compute(steps),
            Task::SleepLong | Task::SleepShort => thread::sleep(self.sleep()),
        }
    }

    /// How long it sleeps, for servers that sleep in their own way.
    pub(crate) fn sleep(self) -> Duration {
        match self {
            Task::SleepLong => Duration::from_millis(5),
            Task::SleepShort => Duration::from_micros(200),
            Task::Nothing | Task::Compute => Duration::ZERO,
        }
    }
}

/// The tasks of whole requests, in order.
pub(crate) fn tasks(whole: &[u8]) -> impl Iterator<Item = Task> + '_ {
    whole.chunks_exact(REQUEST).map(Task::of)
}

/// Does what whole requests ask for, one after the other, on this thread.
pub(crate) fn perform_all(whole: &[u8], steps: u32) {
    tasks(whole).for_each(|task| task.perform(steps));
}

/// The beginning of a request whose end has not come yet: all that a server keeps of a connection's input, so
/// that an idle connection needs no buffer.
#[derive(Debug)]
pub(crate) struct Rest {
    bytes: [u8; REQUEST],
    length: usize,
}

impl Rest {
    /// Of a connection that has sent nothing.
    pub(crate) const NONE: Rest = Rest {
        bytes: [0; REQUEST],
        length: 0,
    };

    /// Puts what was kept in front of `buffer`; the next read appends at the returned position.
    pub(crate) fn restore(&self, buffer: &mut [u8]) -> usize {
        if self.length != 0 {
            buffer[..self.length].copy_from_slice(&self.bytes[..self.length]);
        }
        self.length
    }

    /// Keeps the unfinished end of `filled`, and returns how much of it is whole requests.
    pub(crate) fn keep(&mut self, filled: &[u8]) -> usize {
        let whole = filled.len() - filled.len() % REQUEST;
        self.length = filled.len() - whole;
        if self.length != 0 {
            self.bytes[..self.length].copy_from_slice(&filled[whole..]);
        }
        whole
    }
}

/// A chain of dependent multiplications, so that every compiler needs the same time for a step. Never inlined: all
/// servers of a program run the same instructions, at the same addresses.
#[inline(never)]
pub(crate) fn compute(steps: u32) {
    let mut state = 1_u64;
    for _ in 0..steps {
        state = hint::black_box(state)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
    }
    hint::black_box(state);
}

/// How many steps of [`compute`] take 20 us here: by the fastest of several tries, the one that was disturbed
/// least.
pub(crate) fn steps_of_20us() -> u32 {
    const TRIES: usize = 64;
    const STEPS: u32 = 50_000;
    let times = (0..TRIES).map(|_| {
        let start = Instant::now();
        compute(STEPS);
        start.elapsed()
    });
    let fastest = times
        .min()
        .unwrap_or(COMPUTATION)
        .max(Duration::from_nanos(1));
    let steps = f64::from(STEPS) * COMPUTATION.as_secs_f64() / fastest.as_secs_f64();
    (steps as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::{steps_of_20us, Rest, Task, REQUEST};

    /// However the bytes are cut, the rest in front of them makes them whole again.
    #[test]
    fn a_rest_is_kept_until_its_end_comes() {
        let sent: Vec<u8> = (0..REQUEST as u8 * 3).collect();
        for cut in 1..sent.len() {
            let (mut rest, mut came) = (Rest::NONE, Vec::new());
            for piece in sent.chunks(cut) {
                let mut buffer = [0; 4 * REQUEST];
                let before = rest.restore(&mut buffer);
                buffer[before..][..piece.len()].copy_from_slice(piece);
                let whole = rest.keep(&buffer[..before + piece.len()]);
                came.extend_from_slice(&buffer[..whole]);
            }
            assert_eq!(came, sent, "cut into pieces of {cut}");
        }
    }

    #[test]
    fn a_task_has_its_byte() {
        for task in Task::ALL {
            assert_eq!(Task::of(&[task.byte(), 1]), task);
        }
        assert_eq!(Task::of(&[200]), Task::Nothing);
        assert_eq!(Task::of_line(b"2 x"), Task::SleepLong);
        assert_eq!(Task::of_line(b"slow"), Task::Nothing);
        assert_eq!(Task::of_line(b""), Task::Nothing);
        assert_eq!(Task::of(&[]), Task::Nothing);
    }

    #[test]
    fn steps_are_some() {
        assert!(steps_of_20us() > 100);
    }
}
