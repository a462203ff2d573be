//! The rows: which tier is broken, and how. Each function makes one fault, and returns when it is over.
//! It fails if the fault had no effect: such a row would show nothing.

use std::{
    fs::File,
    io::{self, Write},
    thread,
    time::Duration,
};

use paceline_check::client::{Protocol, Session};

use super::{
    link::{Link, Way},
    stage::{Setup, Stage},
};
use crate::{
    drain::drain,
    tiers::{Fault, Role, Server},
};

/// A fault of a tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) setup: Setup,
    pub(super) strike: fn(&Stage) -> io::Result<()>,
}

/// All rows, from the clients to the disk.
pub(super) const ROWS: &[Row] = &[
    row(
        "clients-reset",
        "all connections of clients are reset",
        clients_reset,
    ),
    row(
        "clients-partition",
        "nothing passes between clients and front-end for 3 s",
        clients_partition,
    ),
    row(
        "clients-slow",
        "20 ms more for each piece between clients and front-end, for 3 s",
        clients_slow,
    ),
    row("front-kill", "kill -9 of the front-end", front_kill),
    row("front-stop", "the front-end is stopped for 3 s", front_stop),
    row(
        "front-drain",
        "the front-end ends gracefully, and is started again",
        front_drain,
    ),
    row(
        "writer-reset",
        "all connections between front-end and writer are reset",
        writer_reset,
    ),
    row(
        "writer-partition",
        "nothing passes between front-end and writer for 5 s",
        writer_partition,
    ),
    row(
        "back-ends-unplugged",
        "the network between front-end and back-ends has no carrier for 5 s",
        back_ends_unplugged,
    )
    .with(Setup::OwnNetwork),
    row(
        "writer-slow",
        "20 ms more for each piece between front-end and writer, for 3 s",
        writer_slow,
    ),
    row(
        "writer-kill",
        "kill -9 of the back-end that writes: its standby takes over",
        writer_kill,
    ),
    row(
        "writer-stop",
        "the back-end that writes is stopped for 3 s",
        writer_stop,
    ),
    row(
        "writer-drain",
        "its clients are paused, it ends gracefully, and its standby takes over",
        writer_drain,
    ),
    row(
        "writer-restart-loop",
        "kill -9 of whichever back-end writes, three times in a row",
        writer_restart_loop,
    ),
    row("standby-kill", "kill -9 of the standby", standby_kill),
    row(
        "standby-stop",
        "the standby is stopped for 3 s",
        standby_stop,
    ),
    row(
        "both-kill",
        "kill -9 of the writer and of its standby at once",
        both_kill,
    ),
    row(
        "disk-full",
        "the file system of the back-ends has no room for 1 s",
        disk_full,
    )
    .with(Setup::SmallDisk),
    row(
        "disk-sync-fails",
        "one sync of the writer fails with EIO",
        disk_sync_fails,
    )
    .with(Setup::Spoiled),
    row(
        "disk-slow",
        "each sync takes 50 ms more, for 3 s",
        disk_slow,
    )
    .with(Setup::Spoiled),
    row(
        "clock-jump",
        "the clock of the back-ends is an hour ahead for 1 s, and then jumps back",
        clock_jump,
    )
    .with(Setup::Spoiled),
    row(
        "primary-kill",
        "kill -9 of PostgreSQL's primary with all its processes",
        primary_kill,
    )
    .with(Setup::Postgres),
    row(
        "primary-stop",
        "PostgreSQL's primary is stopped for 3 s",
        primary_stop,
    )
    .with(Setup::Postgres),
];

const fn row(name: &'static str, what: &'static str, strike: fn(&Stage) -> io::Result<()>) -> Row {
    Row {
        name,
        what,
        setup: Setup::Plain,
        strike,
    }
}

impl Row {
    const fn with(self, setup: Setup) -> Self {
        Self { setup, ..self }
    }
}

fn clients_reset(stage: &Stage) -> io::Result<()> {
    reset(&stage.clients)
}

fn clients_partition(stage: &Stage) -> io::Result<()> {
    for_a_while(&stage.clients, Way::Held, Duration::from_secs(3));
    Ok(())
}

fn clients_slow(stage: &Stage) -> io::Result<()> {
    let way = Way::Slow(Duration::from_millis(20));
    for_a_while(&stage.clients, way, Duration::from_secs(3));
    Ok(())
}

fn front_kill(stage: &Stage) -> io::Result<()> {
    stage.strike(stage.front()?, Fault::Kill)
}

fn front_stop(stage: &Stage) -> io::Result<()> {
    stage.strike(stage.front()?, Fault::Stop)
}

fn front_drain(stage: &Stage) -> io::Result<()> {
    drained(stage, stage.front()?)
}

fn writer_reset(stage: &Stage) -> io::Result<()> {
    reset(stage.link_of_writer()?)
}

/// Longer than the front-end's patience with a probe.
fn writer_partition(stage: &Stage) -> io::Result<()> {
    let link = stage.link_of_writer()?;
    for_a_while(link, Way::Held, Duration::from_secs(5));
    Ok(())
}

/// A partition by the kernel: packets are lost, and TCP sends them again.
fn back_ends_unplugged(stage: &Stage) -> io::Result<()> {
    stage.back_end(Role::Writer)?;
    let network = stage.network()?;
    network.unplug()?;
    thread::sleep(Duration::from_secs(5));
    network.plug_in()
}

fn writer_slow(stage: &Stage) -> io::Result<()> {
    let link = stage.link_of_writer()?;
    let way = Way::Slow(Duration::from_millis(20));
    for_a_while(link, way, Duration::from_secs(3));
    Ok(())
}

fn writer_kill(stage: &Stage) -> io::Result<()> {
    stage.strike(stage.back_end(Role::Writer)?, Fault::Kill)
}

fn writer_stop(stage: &Stage) -> io::Result<()> {
    stage.strike(stage.back_end(Role::Writer)?, Fault::Stop)
}

fn writer_drain(stage: &Stage) -> io::Result<()> {
    drained(stage, stage.back_end(Role::Writer)?)
}

fn writer_restart_loop(stage: &Stage) -> io::Result<()> {
    (0..3).try_for_each(|_| writer_kill(stage))
}

fn standby_kill(stage: &Stage) -> io::Result<()> {
    stage.strike(stage.back_end(Role::Standby)?, Fault::Kill)
}

fn standby_stop(stage: &Stage) -> io::Result<()> {
    stage.strike(stage.back_end(Role::Standby)?, Fault::Stop)
}

fn both_kill(stage: &Stage) -> io::Result<()> {
    let writer = stage.back_end(Role::Writer)?;
    let standby = stage.back_end(Role::Standby)?;
    let before = (writer.view().restarts, standby.view().restarts);
    standby.make(Fault::Kill, &stage.journal);
    writer.make(Fault::Kill, &stage.journal);
    stage.await_restart(writer, before.0)?;
    stage.await_restart(standby, before.1)
}

/// Fills the file system of the back-ends with a file, and removes that again.
fn disk_full(stage: &Stage) -> io::Result<()> {
    let path = stage.data.join("ballast");
    let filled = fill(&path);
    thread::sleep(Duration::from_secs(1));
    std::fs::remove_file(&path)?;
    filled
}

fn fill(path: &std::path::Path) -> io::Result<()> {
    const MOST: usize = 1 << 30;
    let mut file = File::create(path)?;
    let mut piece = vec![0; 1 << 20];
    for _ in 0..MOST / piece.len() {
        match file.write_all(&piece) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                if piece.len() == 1 {
                    return Ok(());
                }
                // What is left is smaller than a piece.
                piece.truncate((piece.len() / 16).max(1));
            }
            written => written?,
        }
    }
    Err(io::Error::other("the file system is not small"))
}

/// The writer reports the commits that wait as unknown and ends: no later sync can repair the log. Its
/// standby takes over. A checkpoint may get the failure instead; it has promised nothing, and the
/// next one repeats it.
fn disk_sync_fails(stage: &Stage) -> io::Result<()> {
    const ATTEMPTS: usize = 20;
    let spoiler = stage.spoiler()?;
    let writer = stage.back_end(Role::Writer)?;
    let before = writer.view().restarts;
    for _ in 0..ATTEMPTS {
        let failed = spoiler.failed_syncs()?;
        spoiler.fail_syncs(1)?;
        stage.wait_until("a sync fails", || {
            spoiler.failed_syncs().is_ok_and(|now| now > failed)
        })?;
        // Its end follows the failure within a second.
        if stage.happens_within(Duration::from_secs(3), || writer.view().restarts > before) {
            return stage.await_restart(writer, before);
        }
    }
    effective(false, "the writer ignores failed syncs")
}

fn disk_slow(stage: &Stage) -> io::Result<()> {
    let spoiler = stage.spoiler()?;
    spoiler.delay_syncs(Duration::from_millis(50))?;
    let before = spoiler.syncs()?;
    thread::sleep(Duration::from_secs(3));
    let made = spoiler.syncs()? - before;
    spoiler.delay_syncs(Duration::ZERO)?;
    // Each of both databases' logs has one sync at a time.
    effective(made > 0 && made <= 2 * 3_000 / 50 + 2, "syncs are not slow")
}

fn clock_jump(stage: &Stage) -> io::Result<()> {
    const HOUR: i64 = 3_600;
    let spoiler = stage.spoiler()?;
    let writer = stage.back_end(Role::Writer)?;
    let before = clock_of(writer)?;
    spoiler.shift_clock(HOUR)?;
    let during = clock_of(writer)?;
    thread::sleep(Duration::from_secs(1));
    spoiler.shift_clock(0)?;
    let after = clock_of(writer)?;
    let is_ahead = |clock: i64| clock - before > HOUR / 2;
    effective(
        is_ahead(during) && !is_ahead(after),
        "the clock has not jumped",
    )
}

/// The clock of a back-end, in seconds.
fn clock_of(server: &Server) -> io::Result<i64> {
    const LIMIT: Duration = Duration::from_secs(20);
    let mut session =
        Session::open(&server.plan.probe, Protocol::Simple, LIMIT).map_err(io::Error::other)?;
    let answer = session.query("SELECT CAST(strftime('%s', 'now') AS bigint)");
    let answer = answer.map_err(io::Error::other)?;
    session.close();
    let clock = answer.number(0, 0);
    clock.ok_or_else(|| io::Error::other("the back-end has no clock"))
}

fn primary_kill(stage: &Stage) -> io::Result<()> {
    stage.strike(stage.back_end(Role::Writer)?, Fault::Kill)
}

fn primary_stop(stage: &Stage) -> io::Result<()> {
    stage.strike(stage.back_end(Role::Writer)?, Fault::Stop)
}

fn reset(link: &Link) -> io::Result<()> {
    effective(link.reset() > 0, "there was no connection to reset")
}

fn for_a_while(link: &Link, way: Way, time: Duration) {
    link.set(way);
    thread::sleep(time);
    link.set(Way::Open);
}

fn drained(stage: &Stage, server: &std::sync::Arc<Server>) -> io::Result<()> {
    let before = server.view().restarts;
    drain(server, stage.console(), &stage.journal).map_err(io::Error::other)?;
    stage.await_restart(server, before)
}

fn effective(had_effect: bool, otherwise: &str) -> io::Result<()> {
    if had_effect {
        Ok(())
    } else {
        Err(io::Error::other(otherwise.to_owned()))
    }
}
