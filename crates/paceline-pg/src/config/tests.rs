//! Tables of files, and what they mean.

use std::{collections::HashMap, io, time::Duration};

use super::*;

mod chance;
mod files;

/// Loads `main.ini` from these files.
fn load_of(files: &[(&str, &str)]) -> Result<Config, Box<Faulty>> {
    let files: HashMap<_, _> = files.iter().copied().collect();
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    load("main.ini", &mut |name| {
        let text = files.get(name).ok_or_else(missing)?;
        Ok(text.as_bytes().to_vec())
    })
}

fn config(text: &str) -> Config {
    load_of(&[("main.ini", text)]).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn error(text: &str) -> String {
    let loaded = load_of(&[("main.ini", text)]);
    loaded.map(|_| text).expect_err("an error").to_string()
}

/// The table is searched by halves, so its order matters; the defaults are read without a check.
#[test]
fn the_table_of_keys_is_in_order_and_its_defaults_are_values() {
    let names: Vec<_> = Key::all().map(|key| key.name).collect();
    assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
    for key in Key::all() {
        let found = Key::find(key.name).map(|key| key.name);
        assert_eq!(found, Some(key.name));
        let mut settings = Settings::default();
        let read = key.read(&mut settings, key.default);
        assert_eq!(read, Ok(Outcome::Set), "{}", key.name);
        assert_eq!(settings, Settings::default(), "{}", key.name);
        assert_eq!(key.show(&settings), key.default, "{}", key.name);
    }
}

/// A field that a key does not set would keep its default for ever.
#[test]
fn each_key_sets_its_own_field_and_no_other() {
    for key in Key::all().filter(|key| key.standing == Standing::Honoured) {
        let mut settings = Settings::default();
        let other = [
            "70",
            "0",
            "/x",
            "statement",
            "plain",
            "require",
            "user",
            "primary",
            "tlsv1.3",
        ];
        let other = other.iter().find(|text| {
            let read = key.read(&mut settings, text);
            read.is_ok() && key.show(&settings) != key.default
        });
        let other = other.unwrap_or_else(|| panic!("{} takes no other value", key.name));
        for each in Key::all().filter(|each| each.name != key.name) {
            assert_eq!(each.show(&settings), each.default, "{} = {other}", key.name);
        }
        let mut copy = Settings::default();
        (key.copy)(&settings, &mut copy);
        assert_eq!(copy, settings, "{}", key.name);
    }
}

#[test]
fn values_are_read_as_pgbouncer_reads_them() {
    let rows: &[(&str, &str, &str)] = &[
        ("listen_port", "0x1f", "31"),
        ("unix_socket_mode", "0700", "0700"),
        ("unix_socket_mode", "511", "0777"),
        ("server_lifetime", "2.5", "2.5"),
        ("server_lifetime", "1e3", "1000"),
        ("log_stats", "0", "0"),
        ("log_stats", "7", "1"),
        ("pool_mode", "Transaction", "transaction"),
        ("auth_type", "scram-sha-256", "scram-sha-256"),
        ("admin_users", " a ,b,, c", "a, b, c"),
        ("client_tls_protocols", "TLSv1.2,tlsv1.3", "secure"),
        ("client_tls_protocols", "tlsv1.3", "tlsv1.3"),
        (
            "server_check_query",
            "select 1 -- ; # no comment",
            "select 1 -- ; # no comment",
        ),
        ("server_check_query", "", ""),
    ];
    for (name, text, shown) in rows {
        let config = config(&format!("[pgbouncer]\n{name} = {text}\n"));
        let key = Key::find(name).expect("a key");
        assert_eq!(key.show(&config.settings), *shown, "{name} = {text}");
    }
}

/// A key that is ignored silently is a promise that is broken silently.
#[test]
fn what_is_wrong_is_named_with_its_line() {
    let rows: &[(&str, &str)] = &[
        ("pool_size = 3", "main.ini:2: pool_size: unknown parameter"),
        (
            "Pool_mode = session",
            "main.ini:2: Pool_mode: unknown parameter",
        ),
        (
            "listen_port = 65536",
            "main.ini:2: listen_port: invalid value \"65536\": expected a number from 0 to 65535",
        ),
        (
            "listen_port = 64 32",
            "main.ini:2: listen_port: invalid value \"64 32\": expected a number from 0 to 65535",
        ),
        (
            "listen_port =",
            "main.ini:2: listen_port: invalid value \"\": expected a number from 0 to 65535",
        ),
        (
            "max_client_conn = -1",
            "main.ini:2: max_client_conn: invalid value \"-1\": expected a number from 0 to \
             4294967295",
        ),
        (
            "scram_iterations = 0",
            "main.ini:2: scram_iterations: invalid value \"0\": expected a number from 1 to \
             10000000",
        ),
        (
            "server_lifetime = -1",
            "main.ini:2: server_lifetime: invalid value \"-1\": expected a number of seconds, \
             such as 2.5",
        ),
        (
            "server_lifetime = inf",
            "main.ini:2: server_lifetime: invalid value \"inf\": expected a number of seconds, \
             such as 2.5",
        ),
        (
            "pool_mode = none",
            "main.ini:2: pool_mode: invalid value \"none\": expected one of session, transaction, \
             statement",
        ),
        (
            "server_tls_protocols = tlsv1.1",
            "main.ini:2: server_tls_protocols: invalid value \"tlsv1.1\": TLS before version 1.2 \
             is refused",
        ),
        (
            "auth_type = pam",
            "main.ini:2: auth_type: invalid value \"pam\": expected one of any, trust, plain, \
             md5, scram-sha-256, hba",
        ),
        (
            "peer_id = 1",
            "main.ini:2: peer_id: refused: one process uses all cores, so there are no peers",
        ),
        (
            "auth_ldap_options = x",
            "main.ini:2: auth_ldap_options: refused: LDAP is not supported",
        ),
        (
            "auth_dbname = pgbouncer",
            "main.ini:2: auth_dbname: invalid value \"pgbouncer\": cannot use the reserved \
             \"pgbouncer\" database as an auth_dbname",
        ),
        (
            "no equals sign",
            "main.ini:2: syntax error: expected \"key = value\"",
        ),
        ("'x = 1", "main.ini:2: syntax error: a quote has no end"),
        (
            "[users",
            "main.ini:2: syntax error: a section has no closing bracket",
        ),
        ("[user]", "main.ini:2: user: unknown section"),
        (
            "[peers]\n1 = host=a",
            "main.ini:3: 1: refused: one process uses all cores, so there are no peers",
        ),
        (
            "[databases]\np = nohost",
            "main.ini:3: [databases] p: syntax error: a key has no value",
        ),
        (
            "[databases]\np = host=a host=",
            "main.ini:3: [databases] p: syntax error: a value is empty",
        ),
        (
            "[databases]\np = password='a",
            "main.ini:3: [databases] p: syntax error: a quote has no end",
        ),
        (
            "[databases]\np = sslmode=x",
            "main.ini:3: [databases] p: sslmode: unknown parameter",
        ),
        (
            "[databases]\np = host=a,b,c port=1,2",
            "main.ini:3: [databases] p: port: invalid value \"1,2\": expected one port, or 3: as \
             many as there are hosts",
        ),
        (
            "[databases]\np = port=0",
            "main.ini:3: [databases] p: port: invalid value \"0\": expected ports from 1 to 65535",
        ),
        (
            "[databases]\npgbouncer = host=a",
            "main.ini:3: pgbouncer: refused: the name is that of the console",
        ),
        (
            "[users]\nu = pool_size=x",
            "main.ini:3: [users] u: pool_size: invalid value \"x\": expected a number from 0 to \
             4294967295",
        ),
        (
            "%include none.ini",
            "main.ini:2: none.ini: could not be read: entity not found",
        ),
        (
            "%include main.ini",
            "main.ini:2: main.ini: syntax error: files include each other too deep",
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(
            error(&format!("[pgbouncer]\n{text}\n")),
            *expected,
            "{text}"
        );
    }
    assert_eq!(
        error("a = 1"),
        "main.ini:1: a: syntax error: a key before any section"
    );
    assert_eq!(
        error("; all defaults"),
        "main.ini: the section [pgbouncer] is missing"
    );
}

/// An administrator who mends one line at each start needs as many starts as there are mistakes.
#[test]
fn every_wrong_line_is_named_in_one_load() {
    let files = [
        (
            "main.ini",
            "a = 1\nb = 2\n[pgbouncer]\nlisten_port = x\npkt_buf = 1\nno equals sign\n\
             %include more.ini\n[databses]\np = host=a\n[databases]\np = host\nq = host=a\n\
             %include none.ini",
        ),
        ("more.ini", "\npool_mode = none\nverbose = 1\n"),
    ];
    let faulty = load_of(&files).expect_err("lines are wrong");
    let expected = [
        "main.ini:1: a: syntax error: a key before any section",
        "main.ini:4: listen_port: invalid value \"x\": expected a number from 0 to 65535",
        "main.ini:6: syntax error: expected \"key = value\"",
        "more.ini:2: pool_mode: invalid value \"none\": expected one of session, transaction, \
         statement",
        "main.ini:8: databses: unknown section",
        "main.ini:11: [databases] p: syntax error: a key has no value",
        "main.ini:13: none.ini: could not be read: entity not found",
    ];
    assert_eq!(faulty.to_string(), expected.join("\n"));
    let warnings: Vec<_> = faulty.config.warnings.iter().map(|it| it.line).collect();
    assert_eq!(warnings, [5], "a warning is named even if there are errors");
    assert_eq!(
        faulty.config.settings.verbose, 1,
        "the right lines are read"
    );
    assert!(faulty.config.databases.contains_key("q"));
    let line = faulty.config.places.get("verbose").map(|place| place.line);
    assert_eq!(line, Some(3));
}

/// Each line of files that include each other would be read ten times ten times.
#[test]
fn files_that_include_each_other_end_the_load() {
    let mut reads = 0;
    let text = "%include main.ini\n".repeat(10);
    let loaded = load("main.ini", &mut |_| {
        reads += 1;
        Ok(text.clone().into_bytes())
    });
    assert!(loaded.is_err());
    assert_eq!(reads, 11);
}

#[test]
fn what_has_no_effect_is_a_warning_unless_it_asks_for_nothing() {
    let config = config("[pgbouncer]\npkt_buf = 8192\nso_reuseport=0\npeer_id = 0\n[pgbouncer]\n");
    let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    let expected = [
        "main.ini:2: pkt_buf: has no effect: messages are not copied into a buffer of fixed size",
        "main.ini:5: pgbouncer: the section is repeated: keys above it still hold, PgBouncer would reset them",
    ];
    assert_eq!(warnings, expected);
}

/// Which keys mean nothing can depend on others.
#[test]
fn what_has_no_effect_because_of_other_keys_is_a_warning() {
    let without_effect = |text: &str| {
        let problems = config(text).without_effect();
        problems.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let why = "has no effect: only pools with pool_mode = statement share connections";
    let text = "[pgbouncer]\nmultiplex = 4\n[databases]\na = multiplex=2\nb = multiplex=0\n";
    let expected = [
        format!("main.ini:4: [databases] a: multiplex: {why}"),
        format!("main.ini:2: multiplex: {why}"),
    ];
    assert_eq!(without_effect(text), expected);
    let by_database = text.replace("b = ", "b = pool_mode=statement ");
    assert_eq!(without_effect(&by_database), expected[..1]);
    for enough in [
        "pool_mode = statement\n",
        "[users]\nu = pool_mode=statement\n",
    ] {
        let text = text.replace("[databases]", &format!("{enough}[databases]"));
        assert!(without_effect(&text).is_empty(), "{enough}");
    }
    let text = "[pgbouncer]\nunix_socket_mode = 0700\nunix_socket_dir = @a\n";
    let why = "has no effect: a socket in the abstract namespace has no file";
    assert_eq!(
        without_effect(text),
        [format!("main.ini:2: unix_socket_mode: {why}")]
    );
    assert!(without_effect(&text.replace('@', "/")).is_empty());
}

#[test]
fn entries_of_databases_and_users_have_all_their_keys() {
    let config = config(
        "[pgbouncer]\n[users]\nu = pool_mode=statement pool_size=0 query_timeout=1.5\n\
         [databases]\np = host=10.0.0.1,::1,/run/pg port=1,2,3 dbname=q user=w password='it''s' \
         connect_query='set a=1; set b = ''x''' reserve_pool=4 query_wait_timeout=0 \
         load_balance_hosts=disable client_encoding=UTF8 timezone=UTC roles=auto multiplex=2\n\
         local = dbname=z\n* = host=any pool_size=9\n",
    );
    let p = &config.databases["p"];
    let hosts: Vec<_> = p.hosts("/tmp").iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["10.0.0.1:1", "[::1]:2", "/run/pg:3"]);
    assert_eq!(
        p.hosts("/tmp")[2].socket_path().as_deref(),
        Some("/run/pg/.s.PGSQL.3")
    );
    assert_eq!((p.server_name(), p.user.as_deref()), ("q", Some("w")));
    assert_eq!(
        p.password.as_ref().map(Password::as_bytes),
        Some(&b"it's"[..])
    );
    assert_eq!(p.connect_query.as_deref(), Some("set a=1; set b = 'x'"));
    assert_eq!(p.query_wait_timeout, Some(Duration::ZERO));
    assert_eq!(
        (p.load_balance_hosts, p.roles),
        (LoadBalance::Disable, Roles::Auto)
    );
    let parameters: Vec<_> = p.startup_parameters().collect();
    assert_eq!(
        parameters,
        [("client_encoding", "UTF8"), ("timezone", "UTC")]
    );
    assert!(
        !format!("{config:?}").contains("it's"),
        "a password is printed"
    );

    let local = config.databases["local"].hosts("/var/run");
    assert_eq!(
        local[0].socket_path().as_deref(),
        Some("/var/run/.s.PGSQL.5432")
    );
    let auto = config.database("new").expect("* has an entry");
    assert_eq!(
        (&*auto.name, auto.server_name(), auto.is_auto),
        ("new", "new", true)
    );
    assert_eq!(config.effective(&auto, "x").pool_size, 9);
    let both = config.effective(p, "u");
    assert_eq!((both.pool_size, both.reserve_pool_size), (0, 4));
    assert_eq!(both.pool_mode, PoolMode::Statement);
    assert_eq!(both.query_timeout, Duration::from_millis(1500));
    assert_eq!(both.client_idle_timeout, Duration::ZERO);
}

/// The keys of one user or database must not leak into those that have none.
#[test]
fn the_users_value_beats_the_databases_and_that_the_global_one() {
    let config = config(
        "[pgbouncer]\ndefault_pool_size=1\nquery_wait_timeout=1\n[databases]\nd = pool_size=2 \
         query_wait_timeout=2\ne =\n[users]\nu = pool_size=3 query_wait_timeout=3\nv =\n",
    );
    let rows = [
        ("d", "u", 3),
        ("d", "v", 2),
        ("d", "w", 2),
        ("e", "u", 3),
        ("e", "v", 1),
    ];
    for (database, user, expected) in rows {
        let effective = config.effective(&config.databases[database], user);
        assert_eq!(effective.pool_size, expected, "{database} {user}");
        let wait = Duration::from_secs(u64::from(expected));
        assert_eq!(effective.query_wait_timeout, wait, "{database} {user}");
    }
}

#[test]
fn secrets_are_read_up_to_the_broken_line() {
    let text = b"; users\n\"a\" \"md5x\"\n\n  \"q\"\"t\"\t\"p\"\"w\" ignored\n\"e\" \"\"\n\"b\" x\n\"c\" \"\"\n";
    let list = Userlist::read("users", text);
    let users = list.users.iter().map(|user| (&*user.name, &*user.secret));
    let expected: [(&[u8], &[u8]); 3] = [(b"a", b"md5x"), (b"q\"t", b"p\"w"), (b"e", b"")];
    assert_eq!(users.collect::<Vec<_>>(), expected);
    let broken = list.broken.expect("line 6 is broken").to_string();
    assert_eq!(
        broken,
        "users:6: syntax error: expected a secret in double quotes"
    );
    assert_eq!(Userlist::read("users", b" \n ; none"), Userlist::default());
    let latin = Userlist::read("users", b"\"\xe4\" \"\xff\"");
    assert_eq!(&*latin.users[0].name, b"\xe4");
}

#[test]
fn the_console_sets_what_acts_at_once() {
    let mut settings = Settings::default();
    assert_eq!(settings.set("query_timeout", "3"), Ok(Outcome::Set));
    assert_eq!(settings.query_timeout, Duration::from_secs(3));
    assert_eq!(settings.set("listen_port", "1"), Ok(Outcome::NeedsRestart));
    assert_eq!(settings.listen_port, 6432);
    assert!(settings.set("listen_port", "x").is_err());
    assert!(matches!(
        settings.set("pkt_buf", "1"),
        Ok(Outcome::NoEffect(_))
    ));
    assert!(matches!(
        settings.set("peer_id", "1"),
        Err(Reason::Refused(_))
    ));
    assert_eq!(settings.set("none", "1"), Err(Reason::UnknownKey));
}

#[test]
fn a_reload_says_what_is_different() {
    let mut now = config(
        "[pgbouncer]\nlisten_port=1\nquery_timeout=1\n[databases]\na=host=x\nb=host=x pool_size=1\n\
         c=host=x\nd=host=x\n[users]\nu=pool_size=1\n",
    );
    let new = config(
        "[pgbouncer]\nlisten_port=2\nquery_timeout=2\n[databases]\na=host=y\nb=host=x pool_size=2\n\
         c=host=x\ne=host=x\n*=host=x\n",
    );
    let difference = now.replace(new);
    let databases = &difference.databases;
    assert_eq!(databases.changed, ["a".into(), "b".into()]);
    assert_eq!(
        (&*databases.added, &*databases.removed),
        (&["e".into()][..], &["d".into()][..])
    );
    assert_eq!(difference.retargeted, ["a".into()]);
    assert_eq!(difference.users.removed, ["u".into()]);
    assert!(difference.autodb_changed);
    let names = |keys: &[&Key]| keys.iter().map(|key| key.name).collect::<Vec<_>>();
    assert_eq!(names(&difference.settings), ["query_timeout"]);
    assert_eq!(names(&difference.needs_restart), ["listen_port"]);
    assert_eq!(now.settings.listen_port, 1, "the listener is still there");
    assert_eq!(now.settings.query_timeout, Duration::from_secs(2));
    let same = now.replace(now.clone());
    assert!(same.settings.is_empty() && same.databases == Changes::default());
}
