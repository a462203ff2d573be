//! Rules, and clients that they admit or refuse.

use super::*;

const RULES: &str = r#"
# TYPE   DATABASE     USER      ADDRESS          METHOD
local    all          postgres                   trust
local    "all"        all                        md5
hostssl  app,sales    all       10.0.0.0/8       scram-sha-256  # with TLS
host     sameuser     all       192.168.1.7 255.255.255.255 password
hostnossl all         eve       all              reject
host     all          bob,eve   ::1/128          md5
host     zero         all       0.0.0.0/0        trust
"#;

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = Rules::read("hba", RULES.as_bytes()).expect("the rules are right");
    let rows: &[(&str, &str, &str, bool, Method)] = &[
        ("x", "postgres", "", false, Method::Trust),
        ("x", "bob", "", false, Method::Reject),
        ("all", "bob", "", false, Method::Md5),
        ("sales", "bob", "10.255.0.1", true, Method::Scram),
        ("sales", "bob", "10.255.0.1", false, Method::Reject),
        ("sales", "bob", "11.0.0.1", true, Method::Reject),
        ("sales", "bob", "::ffff:10.1.1.1", true, Method::Scram),
        ("bob", "bob", "192.168.1.7", false, Method::Plain),
        ("x", "bob", "192.168.1.7", false, Method::Reject),
        ("bob", "bob", "192.168.1.8", false, Method::Reject),
        ("x", "eve", "::1", false, Method::Reject),
        ("x", "eve", "::1", true, Method::Md5),
        ("zero", "x", "1.2.3.4", false, Method::Trust),
        ("zero", "x", "::2", false, Method::Reject),
    ];
    for (database, user, address, is_tls, expected) in rows {
        let attempt = Attempt {
            database,
            user,
            address: (!address.is_empty()).then(|| address.parse().expect("an address")),
            is_tls: *is_tls,
        };
        assert_eq!(rules.method(&attempt), *expected, "{attempt:?}");
    }
}

/// If a rule were ignored, another one would decide about its clients.
#[test]
fn a_rule_outside_of_the_subset_is_an_error() {
    let rows = [
        "local all all peer",
        "local all all md5 map=x",
        "local all all",
        "local all",
        "host all all 10.0.0.1 md5",
        "host all all 10.0.0.0/33 md5",
        "host all all 10.0.0.0/8",
        "host all all 10.0.0.0 ::1 md5",
        "host all all samenet md5",
        "host all +admins all md5",
        "host all @file all md5",
        "host replication all all md5",
        "host all, all md5",
        "host a,,b all all md5",
        "hostgssenc all all all md5",
        "host \"all all all md5",
    ];
    for row in rows {
        let error = Rules::read("hba", format!("\n{row}").as_bytes());
        let error = error.map(|_| row).expect_err("an error")[0].to_string();
        assert!(error.starts_with("hba:2: syntax error: "), "{row}: {error}");
    }
    let error = Rules::read("hba", b"\n\n\xff").expect_err("no text")[0].to_string();
    assert_eq!(error, "hba:3: syntax error: the line is not UTF-8");
}

/// An administrator who mends one line at each start needs as many starts as there are mistakes.
#[test]
fn every_wrong_rule_is_named() {
    let problems = Rules::read(
        "hba",
        b"local all\nlocal all all trust\n\nhost all all x md5\n",
    );
    let problems = problems.expect_err("two lines are wrong");
    let lines: Vec<_> = problems.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [1, 4]);
}
