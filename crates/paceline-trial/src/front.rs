//! The front-end server in a process of its own.

use std::{
    fs, io,
    net::SocketAddr,
    process::{Child, Stdio},
};

use crate::{folder::Folder, postgres::USER, role, wait_until};

/// The database that clients name.
pub const DATABASE: &str = "db";

/// A front-end server.
#[derive(Debug)]
pub struct Front {
    process: Child,
    address: SocketAddr,
    folder: Folder,
}

impl Front {
    /// Starts a front-end with the database [`DATABASE`]. `entry` says where that is, and
    /// `settings` are further lines of its configuration.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(entry: &str, settings: &str) -> io::Result<Self> {
        let folder = Folder::new()?;
        let file = folder.path().join("front.ini");
        let users = folder.path().join("users");
        fs::write(&users, format!("\"{USER}\" \"\"\n"))?;
        let path = folder.path().display();
        let text = format!(
            "[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = 0\nunix_socket_dir =\n\
             logfile = {path}/log\nauth_type = trust\nauth_file = {path}/users\n\
             admin_users = {USER}\n{settings}\n[databases]\n{DATABASE} = {entry}\n"
        );
        fs::write(&file, text)?;
        let process = role::command(&["front", &file.to_string_lossy()])?
            .stdout(Stdio::null())
            .spawn()?;
        let mut front = Self {
            process,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            folder,
        };
        front.wait_until_ready()?;
        Ok(front)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let mut has_ended = false;
        wait_until("the front-end listens", || {
            has_ended = matches!(self.process.try_wait(), Ok(Some(_)));
            has_ended || self.log().contains("process up")
        })?;
        let log = self.log();
        let mut lines = log.lines();
        let port = lines.find_map(|line| line.split_once("listening on 127.0.0.1:"));
        let port = port.and_then(|(_, port)| port.trim().parse().ok());
        let failed = || io::Error::other(format!("the front-end does not listen: {log}"));
        self.address.set_port(port.ok_or_else(failed)?);
        Ok(())
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // It has ended already, if that fails.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
