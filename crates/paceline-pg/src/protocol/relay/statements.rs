//! Messages that name prepared statements.

use super::{
    super::{
        output::Stream,
        server::model::{Answer, Entry},
        Violation,
    },
    from_client::Request,
    Counts, Relay,
};

impl Relay<'_> {
    /// A message of the extended protocol, where each server connection has names of its own.
    pub(super) fn renamed(
        &mut self,
        request: Request<'_>,
        stream: &mut Stream<'_, '_>,
        _counts: &mut Counts,
    ) -> Result<(), Violation> {
        match request.header.tag {
            b'P' => self.parse_as_it_is(request, stream),
            b'B' => self.extended(Entry::Bind(0), request, stream),
            b'D' => self.extended(Entry::Describe(0), request, stream),
            _ => self.extended(Entry::Close, request, stream),
        }
        Ok(())
    }

    pub(super) fn is_own_deallocate(&self, _sql: &[u8]) -> bool {
        false
    }

    pub(super) fn deallocate(
        &mut self,
        _sql: &[u8],
        request: Request<'_>,
        stream: &mut Stream<'_, '_>,
    ) {
        self.drop_request(request, stream);
        self.server.model.answers(Answer::Deallocated);
        self.sync(stream.insert());
    }

    pub(super) fn answer_deallocate(&mut self, to_client: &mut Vec<u8>) {
        paceline_pg_wire::backend::command_complete(to_client, b"DEALLOCATE");
    }
}
