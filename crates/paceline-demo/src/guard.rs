//! Ends a process with the program that has started it, however that one ends.
//!
//! ```text
//!   demo --- pipe ---> child of this program    end_with_parent: a thread reads the pipe
//!        --- pipe ---> guard --> other program  main: reads the pipe, and ends the other program
//! ```

use std::{
    ffi::OsString,
    io::{self, Read},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{kill_process, Pid, Signal};

/// The variable by which a parent says that the input of its child ends with itself.
pub(crate) const VARIABLE: &str = "PACELINE_ENDS_WITH_INPUT";

/// Ends this process when its input ends, if its parent is a demo.
pub fn end_with_parent() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    // The processes that this one starts have other inputs.
    thread::spawn(|| {
        wait_for_end_of_input();
        std::process::exit(1);
    });
}

fn wait_for_end_of_input() {
    let mut piece = [0; 64];
    let mut input = io::stdin().lock();
    loop {
        match input.read(&mut piece) {
            Ok(0) => return,
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return,
            _ => {}
        }
    }
}

/// How often a guard looks whether its program has ended.
const TICK: Duration = Duration::from_millis(20);

/// Runs the program in the arguments as the user with the number in the first of them, and ends it
/// by the signal in the second one when the input ends, or when this process is asked to end.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match guard(arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("paceline guard: {error}");
            ExitCode::FAILURE
        }
    }
}

fn guard(arguments: impl IntoIterator<Item = OsString>) -> io::Result<ExitCode> {
    let mut arguments = arguments.into_iter();
    let mut next = || {
        let missing = || io::Error::other("usage: guard UID SIGNAL PROGRAM ARGUMENTS");
        arguments.next().ok_or_else(missing)
    };
    let number = |text: OsString| {
        let number = text.to_str().and_then(|text| text.parse::<u32>().ok());
        number.ok_or_else(|| io::Error::other("not a number"))
    };
    let (user, signal, program) = (number(next()?)?, number(next()?)?, next()?);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_remove(VARIABLE)
        .stdin(Stdio::null());
    if user != rustix::process::getuid().as_raw() {
        command.uid(user);
    }
    let mut child = command.spawn()?;
    let (tell, told) = std::sync::mpsc::channel();
    let on_signal = tell.clone();
    let pool = paceline::Pool::builder().name("guard").threads(1).build()?;
    pool.sources().signals(
        [paceline::Signal::INT, paceline::Signal::TERM],
        move |_: paceline::Signal, _: &mut paceline::TaskContext<'_>| {
            let _ = on_signal.send(());
        },
    )?;
    thread::spawn(move || {
        wait_for_end_of_input();
        let _ = tell.send(());
    });
    loop {
        if let Some(status) = child.try_wait()? {
            let code = status.code().or(status.signal()).unwrap_or(1);
            return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
        }
        if told.recv_timeout(TICK).is_ok() {
            end(&child, signal);
        }
    }
}

fn end(child: &Child, signal: u32) {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let signal = i32::try_from(signal).ok().and_then(Signal::from_named_raw);
    if let (Some(id), Some(signal)) = (id, signal) {
        // A program that has ended needs no signal.
        let _ = kill_process(id, signal);
    }
}
