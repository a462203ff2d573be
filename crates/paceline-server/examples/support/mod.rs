//! What all examples share: the way of `main`, options that are read the same way everywhere, and the
//! first line of output.
#![allow(dead_code, reason = "each example uses a part of it")]

#[cfg(feature = "_tls")]
pub(crate) mod certificate;

use std::{env, fmt::Display, io, process::ExitCode, str::FromStr, time::Duration};

use lexopt::{Parser, ValueExt};
use paceline_server::Server;

/// The way of each example: `--help`, or options, or a mistake in them; then the program itself.
pub(crate) fn main<O>(
    name: &str,
    help: &str,
    parse: fn(&mut Parser) -> Result<O, lexopt::Error>,
    run: fn(O) -> io::Result<()>,
) -> ExitCode {
    if env::args()
        .skip(1)
        .any(|arg| arg == "--help" || arg == "-h")
    {
        println!("{help}");
        return ExitCode::SUCCESS;
    }
    let options = match parse(&mut Parser::from_env()) {
        Ok(options) => options,
        Err(mistake) => {
            eprintln!("{name}: {mistake}; `{name} --help` lists the options");
            return ExitCode::from(2);
        }
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The value of `option`. If it is none, the error says what would be: `wanted`.
pub(crate) fn value<T: FromStr>(
    parser: &mut Parser,
    option: &str,
    wanted: &str,
) -> Result<T, lexopt::Error> {
    let text = parser.value()?.string()?;
    let value = text.parse();
    value.map_err(|_| mistake(format!("{option} {text:?} is not {wanted}")))
}

/// A number from 1 on.
pub(crate) fn count(parser: &mut Parser, option: &str) -> Result<usize, lexopt::Error> {
    match value(parser, option, "a number")? {
        0 => Err(mistake(format!("{option} 0: it must be at least 1"))),
        count => Ok(count),
    }
}

/// A time in seconds, such as `2` or `0.5`.
pub(crate) fn seconds(parser: &mut Parser, option: &str) -> Result<Duration, lexopt::Error> {
    let seconds: f64 = value(parser, option, "a number of seconds")?;
    let time = Duration::try_from_secs_f64(seconds).ok();
    let time = time.filter(|time| !time.is_zero());
    time.ok_or_else(|| {
        mistake(format!(
            "{option} {seconds}: it must be more than 0 seconds"
        ))
    })
}

/// A mistake in the options.
pub(crate) fn mistake(text: impl Into<String>) -> lexopt::Error {
    lexopt::Error::Custom(text.into().into())
}

/// Prints where the server listens, for people and for programs that wait for it.
pub(crate) fn announce(server: &Server) -> io::Result<()> {
    for address in server.addresses() {
        println!("listening on {address}");
    }
    if let Some(address) = server.metrics_addr() {
        println!("metrics on http://{address}/metrics");
    }
    announce_page(server);
    Ok(())
}

/// Prints where the live page is.
pub(crate) fn announce_page(server: &Server) {
    if let Some(address) = server.page_addr() {
        println!("page on http://{address}/");
    }
}

/// Adds what was attempted to an error.
pub(crate) fn attempted(what: impl Display) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}
