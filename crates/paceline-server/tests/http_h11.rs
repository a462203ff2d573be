//! Heads and chunks against another parser: h11, for Python. Whatever this server takes for a request,
//! h11 must read in the same way: method, target, fields, body. Without h11 the test says that it is
//! skipped.

#[path = "http/table.rs"]
mod table;

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use paceline_server::http::{Trial, TrialRequest};

/// Reads inputs in hexadecimal digits, one a line, and answers each with a line of JSON.
const SCRIPT: &str = r#"
import json, sys
import h11

def read(data):
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    requests = []
    try:
        connection.receive_data(data)
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                fields = [[name.decode("latin1"), value.hex()] for name, value in event.headers]
                requests.append([event.method.decode("latin1"), event.target.hex(), fields, "", False])
            elif isinstance(event, h11.Data):
                requests[-1][3] += bytes(event.data).hex()
            elif isinstance(event, h11.EndOfMessage):
                requests[-1][4] = True
                connection.send(h11.Response(status_code=400, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                    return requests
                connection.start_next_cycle()
            else:
                return requests
    except h11.RemoteProtocolError:
        return requests

for line in sys.stdin:
    print(json.dumps(read(bytes.fromhex(line))), flush=True)
"#;

/// What h11 makes of a request.
type Theirs = (String, String, Vec<(String, String)>, String, bool);

/// h11, in a process of its own.
struct H11 {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl H11 {
    /// `None`, and a line about it, if it is not installed.
    fn start() -> Option<Self> {
        let python = |script: &str| {
            let mut command = Command::new("python3");
            command.args(["-c", script]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            command
        };
        let is_there = python("import h11").stderr(Stdio::null()).status();
        if !is_there.is_ok_and(|status| status.success()) {
            println!("skipped: Python has no module `h11`");
            return None;
        }
        let mut child = python(SCRIPT).spawn().expect("python3 starts");
        Some(Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().expect("its output is piped")),
            child,
        })
    }

    fn read(&mut self, input: &[u8]) -> Vec<Theirs> {
        let pipe = self.input.as_mut().expect("it runs");
        writeln!(pipe, "{}", hex(input)).expect("it reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).unwrap_or_else(|why| panic!("{why}: {line:?}"))
    }
}

impl Drop for H11 {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.input = None;
        let _ = self.child.wait();
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn as_theirs(request: &TrialRequest) -> Theirs {
    let fields = request.fields.iter();
    (
        request.method.clone(),
        hex(request.target.as_bytes()),
        fields
            .map(|(name, value)| (name.to_ascii_lowercase(), hex(value)))
            .collect(),
        hex(&request.body),
        request.is_whole,
    )
}

/// What one parser reads differently. Requests behind the last one that keeps its connection are for
/// nobody.
fn difference(input: &[u8], theirs: &[Theirs]) -> Option<String> {
    let trial = Trial::of(input, &[]);
    let last = trial.requests.iter().position(|it| !it.keeps_alive);
    let count = last.map_or(trial.requests.len(), |last| last + 1);
    let whole = trial.requests[..count].iter().filter(|it| it.is_whole);
    let ours: Vec<_> = whole.map(as_theirs).collect();
    let theirs: Vec<_> = theirs.iter().filter(|it| it.4).cloned().collect();
    if theirs.starts_with(&ours) {
        return None;
    }
    let shown = input.escape_ascii();
    Some(format!("{shown}\n  ours: {ours:?}\n  h11: {theirs:?}"))
}

/// Where h11 refuses what RFC 9112 lets a server take.
fn is_known(input: &[u8]) -> bool {
    let has = |needle: &[u8]| input.windows(needle.len()).any(|window| window == needle);
    // It does not read an empty line before a request, and reads fields that frame a body in trailers,
    // which this server drops.
    input.starts_with(b"\r\n") || has(b"\r\n\r\n\r\n") || has(b"\r\nTransfer-Encoding: x\r\n")
}

/// The next number of a sequence (xorshift).
fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as usize
}

/// A good request of the table and any other one behind it, with bytes changed that matter to a parser.
fn by_chance(good: &[Vec<u8>], all: &[Vec<u8>], state: &mut u64) -> Vec<u8> {
    const LIKELY: &[u8] = b"\r\n\t :;,=0159afx\0\x7f\x80\xff\"HTTPchunked";
    let mut input = good[next(state) % good.len()].clone();
    input.extend(&all[next(state) % all.len()]);
    for _ in 0..next(state) % 4 {
        let place = next(state) % input.len();
        let byte = LIKELY[next(state) % LIKELY.len()];
        match next(state) % 3 {
            0 => input[place] = byte,
            1 => input.insert(place, byte),
            _ => drop(input.remove(place)),
        }
    }
    input
}

/// A request that one parser ends elsewhere than another hides the next one from a proxy between them.
#[test]
fn h11_reads_the_same_requests() {
    let Some(mut h11) = H11::start() else { return };
    let mut cases = table::cases();
    cases.retain(|case| case.raw.len() < 2000);
    let good = cases.iter().filter(|case| case.status == 200);
    let good: Vec<_> = good.map(|case| case.raw.clone()).collect();
    let cases: Vec<_> = cases.into_iter().map(|case| case.raw).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let chance: Vec<_> = (0..4000)
        .map(|_| by_chance(&good, &cases, &mut state))
        .collect();
    let mut taken = 0;
    let mut wrong = Vec::new();
    for input in cases.iter().chain(&chance) {
        let theirs = h11.read(input);
        taken += Trial::of(input, &[]).whole();
        wrong.extend(difference(input, &theirs).filter(|_| !is_known(input)));
    }
    assert!(taken > 1000, "only {taken} inputs are requests");
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(12)].join("\n")
    );
}
