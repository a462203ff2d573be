//! Sockets that systemd has opened, and what it is notified of. A shell stands for systemd.

use std::{os::unix::net::UnixDatagram, process::Command};

use paceline_server::{codec::line, Listen, Server};
use rustix::process::Signal;

use crate::support::{
    actor::{Actor, Calls},
    client, name_of, patience,
    process::{is_child, Process},
    Folder,
};

/// A given socket is served, systemd is notified of the start and of the end.
#[test]
fn a_socket_of_systemd() {
    let name = "a_socket_of_systemd";
    if is_child(name) {
        let calls = Calls::default();
        let server = Server::builder();
        let server = server.listener(Listen::systemd(), line(80), move |_| Actor::new(&calls));
        return server.run().unwrap();
    }
    let folder = Folder::new();
    let notices = UnixDatagram::bind(folder.path("notify")).unwrap();
    notices.set_read_timeout(Some(patience())).unwrap();
    let path = folder.path("notify");
    let mut process = Process::start(&name_of(module_path!(), name), name, |command| {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        *command = as_systemd_does(command, socket);
        command.env("NOTIFY_SOCKET", path);
    });
    let address = process.line("listening on ");
    client(address.parse().unwrap()).ask("a\n", "a\r\n");
    let mut buffer = [0; 100];
    let count = notices.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..count], b"READY=1");
    process.signal(Signal::TERM);
    let count = notices.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..count], b"STOPPING=1");
    assert!(process.end().success());
}

/// The same command with this socket as its third descriptor. The socket comes as standard input,
/// which std can give to a child.
fn as_systemd_does(command: &Command, socket: std::net::TcpListener) -> Command {
    let mut shell = Command::new("sh");
    let script = "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" \"$@\"";
    shell.args(["-c", script]).arg(command.get_program());
    shell.args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    shell
        .stdin(std::os::fd::OwnedFd::from(socket))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped());
    shell
}

/// Without such sockets the start says so.
#[test]
fn none_is_an_error() {
    let calls = Calls::default();
    let server = Server::builder();
    let server = server.listener(Listen::systemd(), line(80), move |_| Actor::new(&calls));
    let error = server.start().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    assert!(error.to_string().contains("systemd"), "{error}");
}
