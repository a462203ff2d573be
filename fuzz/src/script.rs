//! Reads choices from the bytes of a fuzzer.

/// Bytes that are still to be used.
pub(crate) struct Script<'d>(&'d [u8]);

impl<'d> Script<'d> {
    pub(crate) fn new(data: &'d [u8]) -> Self {
        Self(data)
    }

    /// The next byte; zero at the end.
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// Whether no bytes are left.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One of `choices`.
    pub(crate) fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// Up to eight places at which the rest is to be cut, in ascending order.
    pub(crate) fn cuts(&mut self) -> Vec<usize> {
        let count = self.byte() % 9;
        let places: Vec<u8> = (0..count).map(|_| self.byte()).collect();
        let length = self.0.len();
        let mut cuts: Vec<usize> = places
            .iter()
            .map(|place| usize::from(*place) * (length + 1) / 256)
            .collect();
        cuts.sort_unstable();
        cuts
    }

    /// Everything that is left.
    pub(crate) fn rest(self) -> &'d [u8] {
        self.0
    }
}

/// The pieces between the cuts.
pub(crate) fn pieces<'d>(input: &'d [u8], cuts: &[usize]) -> Vec<&'d [u8]> {
    let ends = cuts.iter().copied().chain([input.len()]);
    let mut start = 0;
    ends.map(|end| &input[std::mem::replace(&mut start, end)..end])
        .collect()
}
