//! The commands of the console, carried out.

use std::sync::Arc;

use super::{
    client::{Client, Letter},
    registers::Lookup,
    snapshot::Snapshots,
    state::{locked, Front},
};
use crate::{
    config::CONSOLE,
    console::{self, Command, Refusal, Shutdown},
    log::Level,
    pools::{self, Commanded, DatabaseId, Disabled, OperationId, Phase, Scope},
};

/// What becomes of a command.
#[must_use]
pub(crate) enum Reply {
    /// Its answer was appended.
    Complete,
    /// It is complete when this operation is: then its tag is the answer.
    Pending(String, OperationId),
    /// The program ends.
    Close,
}

impl Front {
    /// Carries out a command of this client.
    pub(crate) fn carry_out_command(
        &self,
        command: &Command,
        client: &Arc<Client>,
        out: &mut Vec<u8>,
    ) -> Reply {
        let done = self.command(command, client, out);
        match done {
            Ok(reply) => {
                if let Reply::Pending(_, operation) = &reply {
                    if locked(&self.operations).wait(*operation, client) {
                        client.send(Letter::Completed);
                    }
                }
                reply
            }
            Err(refusal) => {
                console::refuse(out, &refusal);
                Reply::Complete
            }
        }
    }

    fn command(
        &self,
        command: &Command,
        client: &Arc<Client>,
        out: &mut Vec<u8>,
    ) -> Result<Reply, Refusal> {
        match command {
            Command::Empty => {
                crate::pg_wire::backend::empty_query(out);
                let idle = crate::pg_wire::TransactionStatus::Idle;
                crate::pg_wire::backend::ready_for_query(out, idle);
            }
            Command::Show(what) => console::show(out, *what, &Snapshots(self)),
            Command::Help => console::help(out),
            Command::ShowParameter(name, value) => console::parameter(out, name, value),
            Command::SetIgnored => console::set_ignored(out),
            Command::Set(key, value) => self.set(key, value, out)?,
            Command::Reload => {
                self.issued("RELOAD", client);
                self.reload()?;
                console::done(out, "RELOAD");
            }
            Command::Pause(name) => return self.pause(name.as_deref(), client, out),
            Command::Resume(name) => self.resume(name.as_deref(), client, out)?,
            Command::Suspend => {
                self.issued("SUSPEND", client);
                let commanded = self.book().suspend();
                return self.commanded(commanded, "SUSPEND", "", out);
            }
            Command::Disable(name) => self.disable(name, Disabled::Yes, "DISABLE", out)?,
            Command::Enable(name) => self.disable(name, Disabled::No, "ENABLE", out)?,
            Command::Kill(name) => self.kill(name.as_deref(), client, out)?,
            Command::KillClient(number) => {
                let target = self.clients().with_number(*number).cloned();
                let target = target.ok_or(Refusal::ClientNotFound)?;
                target.send(Letter::Dismiss(pools::Refusal::Killed));
                console::done(out, "KILL_CLIENT");
            }
            Command::Reconnect(name) => {
                self.issued("RECONNECT", client);
                let scope = self.scope(name.as_deref(), "RECONNECT")?;
                let (_done, orders) =
                    self.with_book(|book, now, orders| book.reconnect(scope, now, orders));
                self.carry_out(orders);
                console::done(out, "RECONNECT");
            }
            Command::WaitClose(name) => {
                let scope = self.scope(name.as_deref(), "WAIT_CLOSE")?;
                let commanded = self.book().wait_close(scope);
                return self.commanded(commanded, "WAIT_CLOSE", "", out);
            }
            Command::Shutdown(how) => return Ok(self.shut_down(*how, client, out)),
        }
        Ok(Reply::Complete)
    }

    fn issued(&self, what: &str, client: &Client) {
        self.note_client(Level::Log, client, format_args!("{what} command issued"));
    }

    /// The database that a command names; without a name: all.
    fn scope(&self, name: Option<&str>, verb: &'static str) -> Result<Scope, Refusal> {
        match name {
            None => Ok(Scope::All),
            Some(name) => self.database_id(name, verb).map(Scope::Database),
        }
    }

    fn database_id(&self, name: &str, verb: &'static str) -> Result<DatabaseId, Refusal> {
        if name == CONSOLE {
            let verb = match verb {
                "PAUSE" => "pause",
                "RESUME" => "resume",
                "DISABLE" => "disable",
                "ENABLE" => "enable",
                "KILL" => "kill",
                "RECONNECT" => "reconnect",
                _ => "wait in",
            };
            return Err(Refusal::ConsoleItself(verb, name.into()));
        }
        match self.database(name) {
            Lookup::Known(database) | Lookup::Registered(database) => Ok(database.id),
            Lookup::Unknown => Err(Refusal::NoSuchDatabase(name.into())),
        }
    }

    fn commanded(
        &self,
        commanded: Commanded,
        tag: &str,
        name: &str,
        out: &mut Vec<u8>,
    ) -> Result<Reply, Refusal> {
        match commanded {
            Commanded::Done => {
                console::done(out, tag);
                Ok(Reply::Complete)
            }
            Commanded::Pending(operation) => Ok(Reply::Pending(tag.to_owned(), operation)),
            Commanded::NoDatabase => Err(Refusal::NoSuchDatabase(name.into())),
            Commanded::AlreadyPaused => Err(Refusal::AlreadyPaused),
            Commanded::NotPaused if name.is_empty() => Err(Refusal::NotPaused),
            Commanded::NotPaused => Err(Refusal::DatabaseNotPaused(name.into())),
            Commanded::ShuttingDown => Err(Refusal::ShuttingDown),
        }
    }

    fn pause(
        &self,
        name: Option<&str>,
        client: &Client,
        out: &mut Vec<u8>,
    ) -> Result<Reply, Refusal> {
        self.issued("PAUSE", client);
        let scope = self.scope(name, "PAUSE")?;
        let (commanded, orders) = self.with_book(|book, _, orders| book.pause(scope, orders));
        self.carry_out(orders);
        self.commanded(commanded, "PAUSE", name.unwrap_or_default(), out)
    }

    fn resume(
        &self,
        name: Option<&str>,
        client: &Client,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        self.issued("RESUME", client);
        let scope = self.scope(name, "RESUME")?;
        let (commanded, orders) =
            self.with_book(|book, now, orders| book.resume(scope, now, orders));
        self.carry_out(orders);
        let reply = self.commanded(commanded, "RESUME", name.unwrap_or_default(), out)?;
        debug_assert!(matches!(reply, Reply::Complete), "a resume never waits");
        Ok(())
    }

    fn disable(
        &self,
        name: &str,
        disabled: Disabled,
        tag: &'static str,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let id = self.database_id(name, tag)?;
        let commanded = self.book().set_disabled(id, disabled);
        self.commanded(commanded, tag, name, out).map(drop)
    }

    fn kill(&self, name: Option<&str>, client: &Client, out: &mut Vec<u8>) -> Result<(), Refusal> {
        self.issued("KILL", client);
        let scope = self.scope(name, "KILL")?;
        let (commanded, orders) = self.with_book(|book, _, orders| book.kill(scope, orders));
        self.carry_out(orders);
        self.commanded(commanded, "KILL", name.unwrap_or_default(), out)
            .map(drop)
    }

    fn set(&self, key: &str, value: &str, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let mut config = self.live().config.clone();
        match config.settings.set(key, value) {
            Ok(_outcome) => {}
            Err(error) => {
                self.note(Level::Error, format_args!("SET {key}={value}: {error}"));
                return Err(Refusal::SetFailed);
            }
        }
        let installed = self.install_setting(config).map_err(|why| {
            self.note_unusable(&why);
            Refusal::SetFailed
        })?;
        let notice = installed.map(|why| {
            self.note_unusable(&why);
            "TLS settings could not be applied, still using old settings"
        });
        console::set_done(out, key, value, notice);
        Ok(())
    }

    fn shut_down(&self, how: Shutdown, client: &Client, out: &mut Vec<u8>) -> Reply {
        self.issued("SHUTDOWN", client);
        let (form, limit) = match how {
            Shutdown::Now => {
                self.lifecycle.end();
                return Reply::Close;
            }
            Shutdown::WaitForServers => (pools::Shutdown::WaitForServers, None),
            Shutdown::WaitForClients => (pools::Shutdown::WaitForClients, None),
            Shutdown::WaitForTransactions(limit) => (pools::Shutdown::WaitForTransactions, limit),
        };
        self.begin_shutdown(form, limit);
        console::done(out, "SHUTDOWN");
        Reply::Complete
    }

    /// An operation of the book is complete.
    pub(crate) fn completed(&self, operation: OperationId) {
        if self.lifecycle.ends_with(operation) {
            let what = match self.book().phase() {
                Phase::WaitForServers => "server connections dropped, exiting",
                _ => "client connections dropped, exiting",
            };
            self.note(Level::Log, format_args!("{what}"));
            self.lifecycle.end();
        }
        let client = locked(&self.operations).complete(operation);
        if let Some(client) = client {
            client.send(Letter::Completed);
        }
    }

    /// Nothing waits for the operation any more.
    pub(crate) fn give_up(&self, operation: OperationId) {
        locked(&self.operations).forget(operation);
        self.book().give_up(operation);
    }
}
