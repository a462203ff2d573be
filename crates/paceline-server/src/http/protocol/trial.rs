//! What bytes come to, without a connection: for tests, fuzzers, and comparisons with other parsers.

use super::{BodyStart, HeadLimits, HttpCodec, Item};
use crate::codec::{Codec, Decoded, Malformed};

/// What the bytes of a client came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// The requests, up to the point where one was refused.
    pub requests: Vec<TrialRequest>,
    /// The status of the refusal.
    pub refused: Option<u16>,
}

/// A request whose head is whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrialRequest {
    /// The method.
    pub method: String,
    /// The target, as it was sent.
    pub target: String,
    /// Host and port.
    pub authority: Option<String>,
    /// Names and values.
    pub fields: Vec<(String, Vec<u8>)>,
    /// What has come of the body.
    pub body: Vec<u8>,
    /// Whether all of it has come.
    pub is_whole: bool,
    /// Whether another request may follow.
    pub keeps_alive: bool,
}

impl Trial {
    /// Feeds `input` in pieces that end at `cuts` (each taken modulo its length); the client then sends
    /// nothing more.
    #[must_use]
    pub fn of(input: &[u8], cuts: &[usize]) -> Self {
        let mut codec = HttpCodec::new(HeadLimits::default());
        let mut trial = Self::default();
        let mut at = 0;
        let mut ends: Vec<_> = cuts.iter().map(|cut| cut % (input.len() + 1)).collect();
        ends.sort_unstable();
        for end in ends {
            if trial.feed(&mut codec, &input[..end], &mut at, false) {
                return trial;
            }
        }
        trial.feed(&mut codec, input, &mut at, true);
        trial
    }

    /// Takes all items behind `at`. Whether the input was refused.
    fn feed(&mut self, codec: &mut HttpCodec, input: &[u8], at: &mut usize, ended: bool) -> bool {
        loop {
            let rest = &input[(*at).min(input.len())..];
            if rest.is_empty() && !ended {
                return false;
            }
            match codec.decode(rest, ended) {
                Ok(Decoded::Item { item, consumed }) => {
                    assert!(
                        (1..=rest.len()).contains(&consumed),
                        "an item takes some of the bytes that are there"
                    );
                    *at += consumed;
                    self.take(item);
                }
                Ok(Decoded::Incomplete) => return false,
                Err(why) => {
                    self.refused = Some(status_of(why));
                    return true;
                }
            }
        }
    }

    fn take(&mut self, item: Item<'_>) {
        match item {
            Item::Request { head, body } => {
                let fields = head.fields();
                let mut request = TrialRequest {
                    method: head.method().to_owned(),
                    target: head.target().to_owned(),
                    authority: head.authority().map(str::to_owned),
                    fields: fields
                        .map(|(name, value)| (name.to_owned(), value.to_vec()))
                        .collect(),
                    keeps_alive: head.keeps_alive(),
                    ..TrialRequest::default()
                };
                if let BodyStart::Whole(body) = body {
                    request.body = body.to_vec();
                    request.is_whole = true;
                }
                self.requests.push(request);
            }
            Item::Data { bytes, is_last } => {
                if let Some(request) = self.requests.last_mut() {
                    request.body.extend_from_slice(bytes);
                    request.is_whole = is_last;
                }
            }
            Item::Frame(_) | Item::Dropped => {}
        }
    }

    /// How many requests have come whole.
    #[must_use]
    pub fn whole(&self) -> usize {
        self.requests
            .iter()
            .filter(|request| request.is_whole)
            .count()
    }

    /// The status of the first answer: 200 if it is a request.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self.refused {
            Some(status) if self.whole() == 0 => status,
            _ => 200,
        }
    }
}

fn status_of(why: Malformed) -> u16 {
    match why {
        Malformed::Refused { code, .. } => code,
        _ => 400,
    }
}
