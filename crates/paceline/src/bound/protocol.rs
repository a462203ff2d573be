//! What a protocol says: how a request looks on the wire, and whose a reply is. It does no input
//! and no output.

use std::io;

/// The language that is spoken on a multiplexed connection.
///
/// It opens no socket and reads nothing: bytes come in as arguments. All of it is called by
/// whichever thread sends or reads just then, never for long: it must not block, and must not call
/// the [`Mux`](super::Mux). If it panics while a reply is read, the connection is lost.
///
/// ```
/// use std::io;
/// use paceline::bound::{Header, Protocol, Whose};
///
/// /// Four bytes of id, four of length, then the body; the same in both directions.
/// struct Framed;
///
/// impl Protocol for Framed {
///     type Request = [u8];
///     const ID_BITS: u32 = 32;
///
///     fn encode(&self, request: &[u8], id: u64, out: &mut Vec<u8>) -> io::Result<()> {
///         out.extend_from_slice(&(id as u32).to_be_bytes());
///         out.extend_from_slice(&(request.len() as u32).to_be_bytes());
///         out.extend_from_slice(request);
///         Ok(())
///     }
///
///     fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
///         let Some((header, _)) = bytes.split_first_chunk::<8>() else {
///             return Ok(None); // Not all of it has come.
///         };
///         let [id, length] = [&header[..4], &header[4..]]
///             .map(|word| u32::from_be_bytes(word.try_into().unwrap()));
///         Ok(Some(Header {
///             whose: Whose::Call(id.into()),
///             skip: 8,
///             length: length as usize,
///         }))
///     }
/// }
/// ```
pub trait Protocol: Send + Sync + 'static {
    /// What a caller asks.
    type Request: ?Sized;

    /// How many bits an id has on the wire: ids are below `1 << ID_BITS`. Zero: there are none,
    /// because replies come in the order of requests ([`Whose::Oldest`]).
    ///
    /// Some of these bits number the calls that are under way at once (see
    /// [`Builder::calls`](super::Builder::calls)), the others distinguish calls that follow each
    /// other in one place. At most 64 are used.
    ///
    /// An id is not used again on a connection while a reply with it may still come: a call that
    /// timed out and was dropped keeps its id until the peer answers it. If the peer leaves
    /// requests unanswered for good, their ids are lost until the next connection. When no id is
    /// left, calls are refused (`QuotaExceeded`). So a peer that may do that needs many more ids
    /// than calls: 32 bits last for four billion unanswered requests.
    const ID_BITS: u32;

    /// Appends `request`, under this id, to `out`.
    ///
    /// # Errors
    /// Nothing is sent then, and the caller gets the error.
    fn encode(&self, request: &Self::Request, id: u64, out: &mut Vec<u8>) -> io::Result<()>;

    /// Reads the header at the beginning of `bytes`, behind which there may be more. `None`: not
    /// all of it is there. It must be whole within 4096 bytes, more than which it is never shown.
    /// (A reply that ends with a delimiter must end within these 4096 bytes: its length is known
    /// only there.)
    ///
    /// # Errors
    /// These bytes are no header. The connection is lost.
    fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>>;

    /// A message of the peer's own came ([`Whose::Peer`]): all that its header let through. The
    /// leader calls it, and reads for all callers: be quick.
    fn peer_message(&self, message: &[u8]) {
        let _ = message;
    }
}

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The owner of what follows.
    pub whose: Whose,
    /// So many bytes at the beginning are of no interest to the caller: usually the header itself.
    /// It may be less, if the caller shall see the header too. It is at most what was read.
    pub skip: usize,
    /// So many bytes after them are the caller's.
    pub length: usize,
}

/// The owner of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The reply to the call with this id.
    Call(u64),
    /// The reply to the oldest request that has none: of a protocol without ids.
    Oldest,
    /// No reply at all: a request or a notification of the peer's own.
    Peer,
}
