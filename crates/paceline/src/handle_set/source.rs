//! What a handle set can watch: everything that owns a descriptor, and simulated streams.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use super::simulated::SimStream;

/// What a pool can be given: a value that owns a descriptor for as long as it lives.
///
/// Everything that is [`AsFd`] is a source. Implement `AsFd` for a type of your own that wraps a
/// socket. Implement `Source` by hand only for a type that wraps another source, such as a
/// [`SimStream`] in tests, by passing on what that one returns.
///
/// A bare number is no source: the pool can't know whether it still names the same file.
///
/// ```compile_fail,E0277
/// # use paceline::{Context, Interest, Next, Pool};
/// # let pool = Pool::new().unwrap();
/// let echo = |_: &mut Context<'_, i32>| Ok(Next::Close);
/// pool.register(7, Interest::READ, echo); // `AsFd` is not implemented for `i32`
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a source: it has no descriptor that a pool can wait for",
    label = "not a source",
    note = "a source is `Send + 'static` and implements `AsFd`, as sockets and pipes do"
)]
pub trait Source: Send + 'static {
    /// The descriptor, which stays the same for as long as this value lives.
    fn descriptor(&self) -> Descriptor<'_>;
}

impl<T: AsFd + Send + 'static> Source for T {
    fn descriptor(&self) -> Descriptor<'_> {
        self.as_fd().into()
    }
}

/// The descriptor of a [`Source`], borrowed from it.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'s>(Kind<'s>);

/// What a descriptor belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind<'s> {
    /// The system knows it.
    System(BorrowedFd<'s>),
    /// It means something in a simulation only.
    Simulated(&'s SimStream),
    /// It means something in a model only.
    #[cfg_attr(not(all(test, loom)), allow(dead_code, reason = "of models"))]
    Number(RawFd),
}

impl<'s> Descriptor<'s> {
    pub(super) fn simulated(stream: &'s SimStream) -> Self {
        Self(Kind::Simulated(stream))
    }

    #[cfg(all(test, loom))]
    pub(crate) fn modelled(number: RawFd) -> Self {
        Self(Kind::Number(number))
    }

    pub(super) fn kind(self) -> Kind<'s> {
        self.0
    }
}

impl AsRawFd for Descriptor<'_> {
    fn as_raw_fd(&self) -> RawFd {
        match self.0 {
            Kind::System(descriptor) => descriptor.as_raw_fd(),
            Kind::Simulated(stream) => stream.number(),
            Kind::Number(number) => number,
        }
    }
}

impl<'s> From<BorrowedFd<'s>> for Descriptor<'s> {
    fn from(descriptor: BorrowedFd<'s>) -> Self {
        Self(Kind::System(descriptor))
    }
}
