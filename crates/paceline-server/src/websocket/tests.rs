//! Tests of the protocol: what breaks a rule is refused with the code that RFC 6455 asks for, and
//! messages do not depend on how their bytes come.

use proptest::prelude::*;

use super::*;
use crate::codec::{Codec, Decoded};

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A client's frame: `first` is the byte with FIN and opcode.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..=125 => bytes.push(0x80 | length as u8),
        length @ 126..=0xffff => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(MASK);
    let masked = payload.iter().zip(MASK.iter().cycle());
    bytes.extend(masked.map(|(byte, key)| byte ^ key));
    bytes
}

/// Everything that `input` holds when it comes in pieces that end at `cuts`, without parts.
fn decode(codec: &mut Frames, input: &[u8], cuts: &[usize]) -> Result<Vec<Incoming>, Malformed> {
    let (mut all, mut start) = (Vec::new(), 0);
    for end in cuts.iter().copied().chain([input.len()]) {
        while start < end {
            match codec.decode(&input[start..end], false)? {
                Decoded::Item { item, consumed } => {
                    assert!(consumed > 0, "an item takes a byte at least");
                    start += consumed;
                    all.extend(Some(item).filter(|item| *item != Incoming::Part));
                }
                Decoded::Incomplete => break,
            }
        }
        assert!(end - start.min(end) < 14 + 126, "the input keeps little");
    }
    Ok(all)
}

/// The code with which a client is closed that sends this.
fn code_of(input: &[u8]) -> u16 {
    let whole = decode(&mut Frames::default(), input, &[]);
    let every: Vec<_> = (0..input.len()).collect();
    let in_bytes = decode(&mut Frames::default(), input, &every);
    assert_eq!(whole, in_bytes, "{input:?}");
    CloseCode::of(&whole.expect_err("it breaks a rule")).number()
}

fn messages(input: &[u8]) -> Vec<Incoming> {
    decode(&mut Frames::default(), input, &[]).unwrap()
}

fn text(text: &str) -> Incoming {
    Incoming::Text(text.to_owned())
}

/// A frame that is not masked may be what an attacker made a proxy send (RFC 6455, 5.1).
#[test]
fn ws_unmasked() {
    assert_eq!(code_of(&[0x81, 0x02, b'h', b'i']), 1002);
    assert_eq!(code_of(&[0x89, 0x00]), 1002);
}

/// Text that is not UTF-8 is refused at the byte that shows it, also if a frame or a piece of input
/// cuts the character.
#[test]
fn ws_bad_utf8() {
    for bad in [
        &b"\xff"[..],
        b"ab\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"cut \xe2\x82",
    ] {
        assert_eq!(code_of(&frame(0x81, bad)), 1007, "{bad:?}");
        let mut in_two = frame(0x01, &bad[..1]);
        in_two.extend(frame(0x80, &bad[1..]));
        assert_eq!(code_of(&in_two), 1007, "{bad:?}");
    }
    // The rest of the frame has not come, and the refusal does not wait for it.
    let mut long = frame(0x81, &[b'x'; 1000]);
    long.truncate(8);
    long.extend([0xff ^ MASK[0], 0xff ^ MASK[1]]);
    assert_eq!(code_of(&long), 1007);
    assert_eq!(code_of(&frame(0x88, b"\x03\xe8\xff")), 1007);
}

/// A character that is cut by a frame is whole when the next one has come.
#[test]
fn a_cut_character_is_whole_again() {
    let euro = "€ and 𝄞".as_bytes();
    for at in 0..=euro.len() {
        let mut input = frame(0x01, &euro[..at]);
        input.extend(frame(0x89, b"?"));
        input.extend(frame(0x80, &euro[at..]));
        let ping = Incoming::Ping(b"?".to_vec());
        assert_eq!(messages(&input), [ping, text("€ and 𝄞")]);
    }
}

/// A control frame is short and whole, so that it can be handled between the frames of a message.
#[test]
fn ws_big_control() {
    assert_eq!(code_of(&frame(0x89, &[0; 126])), 1002);
    assert_eq!(code_of(&frame(0x8a, &[0; 70_000])), 1002);
    assert_eq!(code_of(&frame(0x09, b"fragmented")), 1002);
    let at_limit = messages(&frame(0x89, &[7; 125]));
    assert_eq!(at_limit, [Incoming::Ping(vec![7; 125])]);
}

/// A message is bounded, however small its frames are, and a length that is only announced costs no
/// memory.
#[test]
fn ws_fragment_bomb() {
    let mut empty = frame(0x01, b"");
    (0..5000).for_each(|_| empty.extend(frame(0x00, b"")));
    let refused = decode(&mut Frames::default(), &empty, &[]).unwrap_err();
    assert_eq!(CloseCode::of(&refused).number(), 1009);

    let mut big = frame(0x02, &[1; 1 << 19]);
    big.extend(frame(0x00, &[1; 1 << 19]));
    let mut codec = Frames::default();
    assert_eq!(decode(&mut codec, &big, &[]), Ok(vec![]));
    let refused = decode(&mut codec, &frame(0x80, b"1"), &[]).unwrap_err();
    assert_eq!(CloseCode::of(&refused).number(), 1009);

    let mut announced = vec![0x82, 0xff];
    announced.extend((1_u64 << 62).to_be_bytes());
    announced.extend(MASK);
    assert_eq!(code_of(&announced), 1009);

    // At the limit it is served, and the next message has all the room again.
    let mut codec = Frames::default().fragment_limit(2).message_limit(4);
    let mut two = frame(0x01, b"ab");
    two.extend(frame(0x80, b"cd"));
    for _ in 0..3 {
        assert_eq!(decode(&mut codec, &two, &[]), Ok(vec![text("abcd")]));
    }
    let refused = decode(&mut codec, &frame(0x81, b"abcde"), &[]);
    assert_eq!(refused, Err(Malformed::TooLong { limit: 4 }));
}

/// Every other rule for frames.
#[test]
fn broken_rules_are_protocol_errors() {
    let long_form_of_a_short_length = [0x81, 0xfe, 0, 125];
    let longer_form = [0x81, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let negative = [0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0];
    let mut two_beginnings = frame(0x01, b"a");
    two_beginnings.extend(frame(0x81, b"b"));
    for input in [
        frame(0xc1, b"reserved bit 1"),
        frame(0xa1, b"reserved bit 2"),
        frame(0x91, b"reserved bit 3"),
        frame(0x83, b"opcode"),
        frame(0x8b, b"opcode"),
        frame(0x80, b"nothing to continue"),
        frame(0x00, b"nothing to continue"),
        two_beginnings,
        long_form_of_a_short_length.to_vec(),
        longer_form.to_vec(),
        negative.to_vec(),
        frame(0x88, b"\x03"),
    ] {
        assert_eq!(code_of(&input), 1002, "{input:?}");
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535_u16] {
        assert_eq!(code_of(&frame(0x88, &code.to_be_bytes())), 1002, "{code}");
    }
    for code in [1000, 1001, 1003, 1007, 1014, 3000, 4999_u16] {
        let close = Close::new(CloseCode::new(code).unwrap(), "bye");
        let mut payload = code.to_be_bytes().to_vec();
        payload.extend(b"bye");
        let read = messages(&frame(0x88, &payload));
        assert_eq!(read, [Incoming::Close(Some(close))]);
    }
}

/// What follows a close frame is ignored, even if it breaks rules.
#[test]
fn nothing_counts_after_a_close() {
    let mut input = frame(0x88, b"");
    input.extend([0xff; 300]);
    assert_eq!(messages(&input), [Incoming::Close(None)]);
}

/// The end of the input is proper between two messages only.
#[test]
fn a_message_that_is_cut_off_is_truncated() {
    let begun = frame(0x01, b"begun");
    for end in 1..=begun.len() {
        let mut codec = Frames::default();
        let mut start = 0;
        while let Ok(Decoded::Item { consumed, .. }) = codec.decode(&begun[start..end], false) {
            start += consumed;
            if start == end {
                break;
            }
        }
        let ended = codec.decode(&begun[start..end], true);
        assert_eq!(ended, Err(Malformed::Truncated), "{end}");
    }
    assert_eq!(Frames::default().decode(b"", true), Ok(Decoded::Incomplete));
}

/// The examples of RFC 6455, 5.7.
#[test]
fn the_examples_of_the_rfc() {
    let hello = [
        0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58,
    ];
    assert_eq!(messages(&hello), [text("Hello")]);
    let sent = Outgoing::Text("Hello").to_vec().unwrap();
    assert_eq!(sent, [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
    let sent = Outgoing::Binary(&[0; 256]).to_vec().unwrap();
    assert_eq!(
        (sent.len(), &sent[..4]),
        (260, &[0x82, 0x7e, 0x01, 0x00][..])
    );
    let sent = Outgoing::Binary(&[0; 65536]).to_vec().unwrap();
    assert_eq!(&sent[..10], [0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0]);
    let too_long = Outgoing::Ping(&[0; 126]).to_vec();
    assert_eq!(too_long, Err(Malformed::TooLong { limit: 125 }));
}

/// A server's frames have no mask, so a client's codec is this one with masks put on.
#[test]
fn close_frames_have_room_for_their_reason() {
    let reason = "ä".repeat(100);
    let close = Close::new(CloseCode::NORMAL, &reason);
    assert_eq!(close.reason().len(), 122);
    let frame = Outgoing::Close(Some(&close)).to_vec().unwrap();
    assert_eq!((frame.len(), frame[1]), (126, 124));
}

/// Each side sends one close frame, and the server closes behind both.
#[test]
fn closing_takes_one_frame_of_each_side() {
    let normal = Close::new(CloseCode::NORMAL, "");
    let frame = vec![0x88, 2, 0x03, 0xe8];

    let mut asked = Closing::default();
    assert_eq!(asked.close(&normal), Reply::Send(frame.clone()));
    assert!(!asked.is_open());
    assert_eq!(asked.close(&normal), Reply::Nothing);
    assert_eq!(asked.received(Some(&normal)), Reply::Close);
    assert_eq!(asked.received(Some(&normal)), Reply::Nothing);

    let mut answered = Closing::default();
    let reply = answered.received(Some(&normal));
    assert_eq!(reply, Reply::SendAndClose(frame));
    assert_eq!(answered.close(&normal), Reply::Nothing);

    let mut failed = Closing::default();
    let Reply::SendAndClose(frame) = failed.failed(&Malformed::NotUtf8) else {
        panic!("a client that breaks a rule gets the code");
    };
    assert_eq!(frame[2..4], 1007_u16.to_be_bytes());
    assert_eq!(failed.failed(&Malformed::NotUtf8), Reply::Nothing);

    let mut late = Closing::default();
    let _ = late.close(&normal);
    assert_eq!(late.failed(&Malformed::NotUtf8), Reply::Close);
}

type Fields = Vec<(&'static str, &'static [u8])>;

fn request() -> Fields {
    vec![
        ("Host", b"example.org:8080"),
        ("Upgrade", b"websocket"),
        ("Connection", b"keep-alive, Upgrade"),
        ("Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", b"13"),
    ]
}

fn accept(fields: &[(&str, &[u8])], origins: &OriginPolicy) -> Result<Accepted, u16> {
    let opening = Opening {
        method: "GET",
        minor_version: 1,
        fields,
    };
    opening.accept(origins, &[]).map_err(Refused::status)
}

/// The example of RFC 6455, 1.3.
#[test]
fn an_opening_is_accepted() {
    let accepted = accept(&request(), &OriginPolicy::default()).unwrap();
    assert_eq!(accepted.key(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert!(accepted.head().starts_with("HTTP/1.1 101 "));
    assert!(accepted.head().ends_with("xOo=\r\n\r\n"));
    assert_eq!(accepted.protocol(), None);
}

/// The server's best protocol of those that the client offers.
#[test]
fn a_subprotocol_is_chosen_by_the_server() {
    let mut fields = request();
    fields.push(("Sec-WebSocket-Protocol", b"old, chat.2"));
    let opening = Opening {
        method: "GET",
        minor_version: 1,
        fields: &fields,
    };
    let accepted = opening.accept(&OriginPolicy::SameHost, &["chat.3", "chat.2", "old"]);
    let accepted = accepted.unwrap();
    assert_eq!(accepted.protocol(), Some("chat.2"));
    assert!(accepted
        .head()
        .contains("\r\nsec-websocket-protocol: chat.2\r\n"));
}

/// Each field must be there once, with the right value.
#[test]
fn a_wrong_opening_is_refused() {
    let expected = [400, 400, 400, 400, 426];
    for (index, status) in expected.into_iter().enumerate() {
        let mut without = request();
        without.remove(index);
        assert_eq!(accept(&without, &OriginPolicy::Any), Err(status), "{index}");
        let mut wrong = request();
        wrong[index].1 = b"wrong";
        let is_host = index == 0;
        let refused = accept(&wrong, &OriginPolicy::Any).err();
        assert_eq!(refused, (!is_host).then_some(status), "{index}");
    }
    for index in [0, 3, 4] {
        let mut twice = request();
        twice.push(twice[index]);
        assert!(accept(&twice, &OriginPolicy::Any).is_err(), "{index}");
    }
    for key in [
        &b"dGhlIHNhbXBsZSBub25jZQ="[..],
        b"dGhlIHNhbXBsZSBub25jZR==",
        b"dGhlIHNhbXBsZSBub25j*Q==",
        b"dGhlIHNhbXBsZSBub25jZQAA==",
        b"",
    ] {
        let mut fields = request();
        fields[3].1 = key;
        assert_eq!(accept(&fields, &OriginPolicy::Any), Err(400), "{key:?}");
    }
    let fields = request();
    let mut opening = Opening {
        method: "POST",
        minor_version: 1,
        fields: &fields,
    };
    let refused = opening.accept(&OriginPolicy::Any, &[]);
    assert_eq!(refused, Err(Refused::Method));
    (opening.method, opening.minor_version) = ("GET", 0);
    let refused = opening.accept(&OriginPolicy::Any, &[]);
    assert_eq!(refused.unwrap_err().status(), 400);
}

/// A page of another site must not speak in the name of its visitor.
#[test]
fn ws_foreign_origin() {
    let with = |origins: &[&'static [u8]], policy: &OriginPolicy| {
        let mut fields = request();
        fields.extend(origins.iter().map(|origin| ("Origin", *origin)));
        accept(&fields, policy).map(drop)
    };
    let same = OriginPolicy::SameHost;
    assert_eq!(with(&[b"https://example.org:8080"], &same), Ok(()));
    assert_eq!(with(&[b"HTTP://Example.org:8080"], &same), Err(403));
    assert_eq!(with(&[b"http://Example.ORG:8080"], &same), Ok(()));
    for foreign in [
        &b"https://evil.example"[..],
        b"https://example.org",
        b"https://example.org:8080.evil.example",
        b"https://evil.example/example.org:8080",
        b"null",
        b"",
    ] {
        assert_eq!(with(&[foreign], &same), Err(403), "{foreign:?}");
        assert_eq!(with(&[foreign], &OriginPolicy::Any), Ok(()));
    }
    let allowed = OriginPolicy::Allow(vec!["https://app.example".into()]);
    assert_eq!(with(&[b"https://app.example"], &allowed), Ok(()));
    assert_eq!(with(&[b"https://example.org:8080"], &allowed), Ok(()));
    assert_eq!(with(&[b"https://app.example.evil"], &allowed), Err(403));
    let two: [&[u8]; 2] = [b"https://example.org:8080", b"https://evil.example"];
    assert_eq!(with(&two, &same), Err(403));
}

/// What a client may send, in frames of its choice.
#[derive(Clone, Debug)]
enum Sent {
    Data {
        is_text: bool,
        text: String,
        cuts: Vec<usize>,
    },
    Control(u8, Vec<u8>),
}

/// A control frame between the frames of a message.
const BETWEEN: &[u8] = b"alive";

impl Sent {
    /// Appends its frames to `input`, and what they are to `expected`.
    fn append(&self, input: &mut Vec<u8>, expected: &mut Vec<Incoming>) {
        match self {
            Self::Control(opcode, payload) => {
                input.extend(frame(*opcode, payload));
                expected.push(if *opcode == 0x89 {
                    Incoming::Ping(payload.clone())
                } else {
                    Incoming::Pong(payload.clone())
                });
            }
            Self::Data {
                is_text,
                text,
                cuts,
            } => {
                let (bytes, mut start) = (text.as_bytes(), 0);
                let mut opcode = if *is_text { 0x01 } else { 0x02 };
                for end in cuts.iter().map(|cut| cut % (bytes.len() + 1)) {
                    if end >= start {
                        input.extend(frame(opcode, &bytes[start..end]));
                        input.extend(frame(0x8a, BETWEEN));
                        expected.push(Incoming::Pong(BETWEEN.to_vec()));
                        (opcode, start) = (0x00, end);
                    }
                }
                input.extend(frame(0x80 | opcode, &bytes[start..]));
                expected.push(if *is_text {
                    Incoming::Text(text.clone())
                } else {
                    Incoming::Binary(bytes.to_vec())
                });
            }
        }
    }
}

fn sent() -> impl Strategy<Value = Sent> {
    let cuts = proptest::collection::vec(any::<usize>(), 0..5);
    prop_oneof![
        (any::<bool>(), ".{0,200}", cuts).prop_map(|(is_text, text, cuts)| Sent::Data {
            is_text,
            text,
            cuts
        }),
        (
            0x89_u8..=0x8a,
            proptest::collection::vec(any::<u8>(), 0..125)
        )
            .prop_map(|(opcode, payload)| Sent::Control(opcode, payload)),
    ]
}

proptest! {
    /// However messages are cut into frames, and frames into pieces of input: the same messages.
    #[test]
    fn any_split_gives_the_same_messages(
        sent in proptest::collection::vec(sent(), 1..8),
        cuts in proptest::collection::vec(any::<usize>(), 0..30),
    ) {
        let (mut input, mut expected) = (Vec::new(), Vec::new());
        for message in &sent {
            message.append(&mut input, &mut expected);
        }
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % input.len()).collect();
        cuts.sort_unstable();
        let decoded = decode(&mut Frames::default(), &input, &cuts);
        prop_assert_eq!(decoded, Ok(expected));
    }

    /// Any bytes are decoded or refused, in the same way whether they come whole or one by one.
    #[test]
    fn any_bytes_are_decoded_or_refused(input in proptest::collection::vec(any::<u8>(), 1..400)) {
        let every: Vec<_> = (0..input.len()).collect();
        let whole = decode(&mut Frames::default(), &input, &[]);
        let in_bytes = decode(&mut Frames::default(), &input, &every);
        prop_assert_eq!(whole, in_bytes);
    }

    /// What a server sends is one frame with all of the payload.
    #[test]
    fn a_server_frame_holds_its_payload(payload in proptest::collection::vec(any::<u8>(), 0..70_000)) {
        let mut sent = Vec::new();
        Frames::default().encode(&payload, &mut sent).unwrap();
        prop_assert!(sent.ends_with(&payload));
        // The same frame, as a client would have masked it.
        let masked = frame(sent[0], &payload);
        prop_assert_eq!(sent.len() + 4, masked.len());
        let mut header = sent[..sent.len() - payload.len()].to_vec();
        header[1] |= 0x80;
        prop_assert!(masked.starts_with(&header));
    }
}
