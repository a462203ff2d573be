//! Lines, repeated keys, and included files.

use super::*;

/// Installations append lines to their file: the last line of a key takes effect.
#[test]
fn the_last_of_repeated_keys_and_entries_holds() {
    let config = config(
        "[databases]\na = host=one\n[pgbouncer]\nlisten_port = 1\nlisten_port = 2\n\
         [databases]\na = host=two\nb=\n",
    );
    assert_eq!(config.settings.listen_port, 2);
    let hosts = config.databases["a"].hosts("/tmp");
    assert_eq!(
        hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["two:5432"]
    );
    assert_eq!(config.databases.len(), 2);
}

#[test]
fn included_files_keep_the_section() {
    let files = [
        ("main.ini", "[pgbouncer]\n%include more.ini\nb = host=h\n"),
        ("more.ini", "listen_port = 7\n[databases]\na =\n"),
    ];
    let config = load_of(&files).expect("both files are right");
    assert_eq!(config.settings.listen_port, 7);
    assert_eq!(
        config
            .databases
            .keys()
            .map(AsRef::as_ref)
            .collect::<Vec<&str>>(),
        ["a", "b"]
    );
    let bad = [
        ("main.ini", "%include more.ini"),
        ("more.ini", "[pgbouncer]\n\nx = 1"),
    ];
    let error = load_of(&bad).expect_err("an unknown key");
    assert_eq!(error.to_string(), "more.ini:3: x: unknown parameter");
}

/// White space, comments, quotes: what files in the field contain.
#[test]
fn lines_are_read_as_pgbouncer_reads_them() {
    let config = config(
        "\u{20}\t[pgbouncer] ; behind a section\r\n\r\n# comment\n ; comment\n  listen_port\t=\t5 \r\n\
         [databases]\n'a b' = host=x\n\"say \"\"hi\"\"\" = host=y\nx.y-z_0 = host = z  port='77'\n",
    );
    assert_eq!(config.settings.listen_port, 5);
    let names: Vec<&str> = config.databases.keys().map(AsRef::as_ref).collect();
    assert_eq!(names, ["a b", "say \"hi\"", "x.y-z_0"]);
    assert_eq!(config.databases["x.y-z_0"].hosts("")[0].to_string(), "z:77");
}
