//! RELOAD: the files are read again, and what has changed takes effect.

use super::{
    client::Limits,
    live::{self, Live, Unusable},
    state::Front,
};
use crate::{
    config::{Config, Difference},
    console::Refusal,
    log::{Level, LogTo},
    pools::Scope,
};

impl Front {
    /// Reads the files again.
    ///
    /// # Errors
    /// They can't be used: everything is as before, and the log says why.
    pub(crate) fn reload(&self) -> Result<(), Refusal> {
        let installed = live::read_config(&self.file).and_then(|new| self.install(new));
        installed.map_err(|why| {
            self.note_unusable(&why);
            Refusal::ReloadFailed
        })
    }

    /// Logs why a configuration can't be used.
    pub(crate) fn note_unusable(&self, why: &Unusable) {
        for text in &why.errors {
            self.note(Level::Error, format_args!("{text}"));
        }
        for text in &why.warnings {
            self.note(Level::Warning, format_args!("{text}"));
        }
    }

    /// Puts a configuration in force.
    ///
    /// # Errors
    /// It can't be used: everything is as before.
    pub(crate) fn install(&self, new: Config) -> Result<(), Unusable> {
        let (config, difference, changes_tls) = self.compare(new);
        let live = Live::new(config)?;
        self.put_in_force(live, &difference, changes_tls);
        Ok(())
    }

    /// Puts a configuration in force that one `SET` has changed. If TLS can't be set up as it says,
    /// that stays as it was, and the reason is the value.
    ///
    /// # Errors
    /// It can't be used: everything is as before.
    pub(crate) fn install_setting(&self, new: Config) -> Result<Option<Unusable>, Unusable> {
        let (config, difference, changes_tls) = self.compare(new);
        let (live, why_not) = self.live().after(config)?;
        let changes_tls = changes_tls && why_not.is_none();
        self.put_in_force(live, &difference, changes_tls);
        Ok(why_not)
    }

    fn compare(&self, new: Config) -> (Config, Difference, bool) {
        let old = self.live();
        let mut config = old.config.clone();
        let difference = config.replace(new);
        let changes_tls = differs_in_tls(&old, &config);
        (config, difference, changes_tls)
    }

    fn put_in_force(&self, live: Live, difference: &Difference, changes_tls: bool) {
        for remark in &live.remarks {
            self.note(Level::Warning, format_args!("{remark}"));
        }
        for key in &difference.needs_restart {
            let name = key.name;
            self.note(
                Level::Warning,
                format_args!("changing {name} requires a restart: it keeps its value"),
            );
        }
        let to = LogTo::of(live.settings(), self.is_quiet);
        if let Err(why) = self.log.reopen(&to) {
            self.note(Level::Error, format_args!("{why}"));
        }
        self.book().configure(live.book_settings());
        self.verifiers().clear();
        self.replace_live(live);
        self.apply(difference, changes_tls);
    }

    fn apply(&self, difference: &Difference, changes_tls: bool) {
        let live = self.live();
        for name in difference
            .databases
            .added
            .iter()
            .chain(&difference.databases.changed)
        {
            if let Some(config) = live.config.databases.get(name) {
                let database = self.add_database(std::sync::Arc::clone(config));
                if let Some(user) = &config.user {
                    // Its pool may have a least size.
                    let _ = self.pool_of(&database, user);
                }
            }
        }
        for name in &difference.databases.removed {
            if live.config.database(name).is_none() {
                self.remove_database(name);
            }
        }
        self.register_users(&live);
        drop(live);
        if difference.changes("tcp_defer_accept") {
            self.defer_accept();
        }
        self.renew_terms();
        self.renew_limits();
        for name in &difference.retargeted {
            if let Some(database) = self.registers.known_database(name) {
                self.reconnect(Scope::Database(database.id));
            }
        }
        if changes_tls {
            self.reconnect(Scope::All);
        }
    }

    fn remove_database(&self, name: &str) {
        if let Some(database) = self.forget_database(name) {
            let id = database.id;
            let ((), orders) = self.with_book(|book, _, orders| book.remove_database(id, orders));
            self.carry_out(orders);
        }
    }

    fn reconnect(&self, scope: Scope) {
        let (_done, orders) =
            self.with_book(|book, now, orders| book.reconnect(scope, now, orders));
        self.carry_out(orders);
    }

    /// The time-outs of clients that have logged in.
    fn renew_limits(&self) {
        let live = self.live();
        let clients: Vec<_> = self.clients().all().cloned().collect();
        for client in clients {
            let (database, user) = {
                let facts = client.facts();
                (facts.database.clone(), facts.user.clone())
            };
            if let Some(config) = live.config.database(&database) {
                let effective = live.config.effective(&config, &user);
                client.facts().limits = Some(self.commons.limits(Limits::of(&effective)));
            }
        }
    }
}

/// Whether connections to servers would be made in another way.
fn differs_in_tls(old: &Live, new: &Config) -> bool {
    let (old, new) = (old.settings(), &new.settings);
    old.server_tls_sslmode != new.server_tls_sslmode
        || old.server_tls_protocols != new.server_tls_protocols
        || old.server_tls13_ciphers != new.server_tls13_ciphers
        || old.server_tls_ca_file != new.server_tls_ca_file
        || old.server_tls_cert_file != new.server_tls_cert_file
        || old.server_tls_key_file != new.server_tls_key_file
}
