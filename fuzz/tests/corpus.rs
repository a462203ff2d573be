//! Replays the corpus: inputs that were written by hand, and inputs that once broke a promise.

use std::{fs, path::Path};

use paceline_fuzz::TARGETS;

/// A promise that held for an input holds for it after each change. `cargo xtask fuzz` found bugs
/// with some of these inputs; a parser that is changed must not bring them back.
#[test]
fn every_input_of_the_corpus_keeps_the_promises() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in TARGETS {
        let folder = corpus.join(target.name);
        let inputs = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        let mut count = 0;
        for input in inputs {
            let path = input.expect("an entry of the corpus").path();
            let data = fs::read(&path).expect("an input of the corpus");
            println!("{}", path.display());
            (target.run)(&data);
            count += 1;
        }
        assert!(count > 0, "{folder:?} is empty");
    }
}

/// Every target runs on many inputs from a fixed sequence too, so that a promise which any input
/// breaks is found without the fuzzer.
#[test]
fn a_thousand_inputs_by_chance_keep_the_promises() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..1_000 {
        let input = input_by_chance(&mut state);
        for target in TARGETS {
            (target.run)(&input);
        }
    }
}

/// Up to 64 bytes, of which many matter to a parser.
fn input_by_chance(state: &mut u64) -> Vec<u8> {
    const LIKELY: &[u8] = b"\r\n\r\n..\0\x01\x02\x80\xffaab:; 0123456789abcdefGET";
    let length = next(state) % 64;
    (0..length)
        .map(|_| {
            let bits = next(state);
            if bits & 256 == 0 {
                LIKELY[bits as usize % LIKELY.len()]
            } else {
                bits as u8
            }
        })
        .collect()
}

/// The next number of the sequence (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 11
}
