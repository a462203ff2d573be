//! The picture: plain ANSI escapes, or one line per change.

use std::{
    io::{self, Write},
    time::Duration,
};

use paceline::{
    observe::{Role, Snapshot},
    Order,
};

use super::{
    stand::{Cab, SharedStand, Stand},
    Passenger, Wish,
};

/// How many of the last captions stay on the screen.
const CAPTIONS: usize = 4;
/// Another screen, no cursor, no wrapping of long lines; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const BOLD: u8 = 1;
const DIM: u8 = 2;
const RED: u8 = 31;
const GREEN: u8 = 32;
const YELLOW: u8 = 33;

/// The terminal, as long as it is ours.
pub(super) struct Screen {
    plain: bool,
    captions: Vec<String>,
}

impl Screen {
    pub(super) fn open(plain: bool) -> io::Result<Self> {
        let screen = Self {
            plain,
            captions: Vec::new(),
        };
        if !plain {
            write!(io::stdout(), "{ENTER}")?;
        }
        Ok(screen)
    }

    /// Shows what is new.
    pub(super) fn show(&mut self, stand: &SharedStand, seen: &Snapshot) -> io::Result<()> {
        let news = stand.look().take_news();
        let mut out = io::stdout().lock();
        if self.plain {
            news.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        } else {
            self.captions.extend(news);
            let old = self.captions.len().saturating_sub(CAPTIONS);
            self.captions.drain(..old);
            let lines = picture(&stand.look(), seen, &self.captions);
            write!(out, "\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n"))?;
        }
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if !self.plain {
            let _ = write!(io::stdout(), "{LEAVE}").and_then(|()| io::stdout().flush());
        }
    }
}

fn picture(stand: &Stand, seen: &Snapshot, captions: &[String]) -> Vec<String> {
    let mut lines = vec![
        title(stand),
        String::new(),
        passengers(stand),
        String::new(),
        front(stand),
        followers(stand),
        String::new(),
    ];
    let cabs = stand.cabs.iter().enumerate();
    lines.extend(cabs.map(|(number, cab)| ride(number, cab, stand.now())));
    lines.push(String::new());
    lines.extend(counters(seen));
    lines.push(String::new());
    if let Some((last, older)) = captions.split_last() {
        lines.extend(older.iter().map(|caption| paint(DIM, caption)));
        lines.push(paint(BOLD, last));
    }
    lines
}

fn title(stand: &Stand) -> String {
    let options = &stand.options;
    let settings = format!("order {:?}, wake {:?}", options.order, options.wake).to_lowercase();
    let (now, end) = (stand.now().as_secs(), options.seconds.as_secs());
    format!(
        "{}  {settings}, {now} s of {end}",
        paint(BOLD, "TAXI STAND")
    )
}

fn passengers(stand: &Stand) -> String {
    let waits = |one: &Passenger| {
        let since = stand.now().saturating_sub(one.comes).as_secs_f64();
        format!("{} ({since:.1} s)", one.name)
    };
    let waiting: Vec<_> = stand.waiting.iter().map(waits).collect();
    if waiting.is_empty() {
        "  waiting    nobody".to_owned()
    } else {
        format!("  waiting    {}", paint(YELLOW, &waiting.join("  ")))
    }
}

fn front(stand: &Stand) -> String {
    let vacant = stand.vacant().as_secs_f64();
    let (color, text) = match (stand.leader(), stand.followers().is_empty()) {
        (Some(leader), _) => (
            GREEN,
            format!("[{leader}]  leads: looks out for passengers"),
        ),
        (None, false) => (
            RED,
            format!("[ ]  open for {vacant:.1} s: nobody leads until the standby sees it"),
        ),
        (None, true) => (
            RED,
            format!("[ ]  open for {vacant:.1} s: all cabs away, events wait in the handle set"),
        ),
    };
    format!("  FRONT      {}", paint(color, &text))
}

fn followers(stand: &Stand) -> String {
    let followers = stand.followers();
    let next = match stand.options.order {
        _ if followers.is_empty() => return "  behind     nobody follows".to_owned(),
        Order::Newest => "who came last is woken next",
        Order::Oldest => "who came first is woken next",
        Order::Priority => "the highest number is woken next",
        _ => "the system picks the next",
    };
    let row: Vec<_> = followers.iter().map(|cab| format!("({cab})")).collect();
    format!("  behind     {}  asleep; {next}", row.join(" "))
}

/// A cab on a ride, how far it got, and how long still.
fn ride(number: usize, cab: &Cab, now: Duration) -> String {
    let Some((fare, until)) = &cab.fare else {
        let role = match cab.role {
            Some(Role::Leader) => "leads",
            Some(Role::Follower) => "follows",
            _ => "",
        };
        return paint(DIM, &format!("  cab {number}      {role}"));
    };
    let left = until.saturating_sub(now);
    let far = 20 - (left.as_secs_f64() * 20.0 / fare.ride.as_secs_f64()) as usize;
    let road = format!(
        "{}>{}",
        "=".repeat(far.min(20)),
        ".".repeat(20 - far.min(20))
    );
    let left = left.as_secs_f64();
    let told = match fare.wish {
        Wish::ToldRide => "told",
        _ => "untold",
    };
    let text = format!("{road}  {:<5} {left:.1} s more ({told})", fare.name);
    format!("  cab {number}      {}", paint(YELLOW, &text))
}

/// Two lines for a narrow terminal.
fn counters(seen: &Snapshot) -> [String; 2] {
    let (wakes, wasted) = (seen.wakes, seen.wasted_wakes);
    let (ticks, back) = (seen.ticks, seen.leads_taken_back);
    let longest = seen.longest_without_leader.as_millis();
    [
        format!(
            "  promotions {}, wakes {wakes} (wasted {wasted}), ticks {ticks}",
            seen.promotions
        ),
        format!("  leads taken back {back}, longest time without a leader {longest} ms"),
    ]
}

/// The day as a table.
pub(super) fn summary(stand: &Stand, seen: &Snapshot) -> String {
    let mut lines = vec!["rides per cab:".to_owned()];
    for (number, cab) in stand.cabs.iter().enumerate() {
        lines.push(format!(
            "  cab {number}  {:3}  {}",
            cab.rides,
            "#".repeat(cab.rides)
        ));
    }
    lines.push(
        match stand.options.order {
            Order::Newest => {
                "newest first: who came back last goes again, still warm; the others sleep"
            }
            Order::Oldest => "oldest first: every cab has its turn, and is cold by then",
            Order::Priority => "by priority: the highest number that is free drives",
            _ => "by the system: as it likes",
        }
        .to_owned(),
    );
    lines.extend(counters(seen));
    lines.join("\n")
}

fn paint(color: u8, text: &str) -> String {
    format!("\x1b[{color}m{text}\x1b[0m")
}
