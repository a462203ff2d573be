//! `threads`: every request is answered or refused, and Leader/Followers refuses none.

use super::program::run_example;

#[test]
fn each_request_is_answered_or_refused() {
    let ended = run_example(
        "threads",
        &["--connections", "8", "--requests", "50", "--queue", "1"],
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // A head, and three works on three engines.
    assert_eq!(ended.lines.len(), 10, "{:#?}", ended.lines);
    for line in &ended.lines[1..] {
        let figures: Vec<&str> = line.split_whitespace().rev().take(6).collect();
        let number = |at: usize| figures[at].parse::<u64>().unwrap();
        let (answers, refused) = (number(5), number(4));
        assert_eq!(answers + refused, 400, "{line}");
        if !line.contains("queue of") {
            assert_eq!(refused, 0, "{line}");
        }
        assert!(number(2) <= number(1) && number(1) <= number(0), "{line}");
    }
}
