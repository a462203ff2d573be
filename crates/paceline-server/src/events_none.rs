//! What stands for the events of the crate `tracing` in a build without it: nothing.

use std::{fmt, io, time::Duration};

use paceline::Builder;

use crate::{
    access_log::Entry, link::Link, peer::PeerAddress, server::DrainReport, session::Ended,
};

pub(crate) fn observe(pool: Builder, _: &str) -> Builder {
    pool
}

pub(crate) fn listening(_: &str, _: &str) {}

pub(crate) fn opened(_: &Link) {}

pub(crate) fn ended(_: &Entry<'_>) {}

pub(crate) fn not_made(_: &str, _: &PeerAddress, _: &Ended) {}

pub(crate) fn missed(_: &Link) {}

pub(crate) fn draining(_: Duration) {}

pub(crate) fn drained(_: &DrainReport) {}

#[cfg_attr(not(feature = "_tls"), allow(dead_code))]
pub(crate) fn reloaded(_: &dyn fmt::Debug, _: &io::Result<()>) {}
