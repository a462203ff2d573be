//! The commands of other crates, which read their own arguments: back-end, checker, demo, guard.

use crate::command::Command;

/// `paceline back`: the embedded database server.
pub(crate) const BACK: Command = Command {
    name: "back",
    summary: "the embedded database server: PostgreSQL's protocol over SQLite",
    run: |arguments| Ok(paceline_sqlite::cli::run(arguments)),
};

/// `paceline check`: the consistency checker.
pub(crate) const CHECK: Command = Command {
    name: "check",
    summary: "checks what transactions promise, on any system of PostgreSQL's protocol",
    run: |arguments| Ok(paceline_check::command::main(arguments)),
};

/// `paceline demo`: the whole system. It is also what the program does without arguments.
pub(crate) const DEMO: Command = Command {
    name: "demo",
    summary: "the whole system: back-ends, front-end, clients, a page (without a command: this)",
    run: |arguments| Ok(paceline_demo::main(arguments)),
};

/// The lines of the demo's help that describe its options.
pub(crate) fn demo_options() -> String {
    let lines = paceline_demo::HELP.lines();
    let lines = lines.skip_while(|line| !line.starts_with("  --"));
    let lines: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    lines.join("\n")
}

/// `paceline guard`: runs another program of the demo, and ends it with the demo.
pub(crate) const GUARD: Command = Command {
    name: "guard",
    summary: "for the demo: runs a program, and ends it when the input ends",
    run: |arguments| Ok(paceline_demo::guard::main(arguments)),
};
