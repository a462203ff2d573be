//! The table of keys: it drives reading, `SHOW CONFIG` and `SET`.

use super::{
    error::Reason,
    settings::{Settings, KEYS},
};

/// A key of the section `[pgbouncer]`.
#[derive(Clone, Copy)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its default, as a file would write it.
    pub default: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Whether this program honours it.
    pub standing: Standing,
    /// When a new value takes effect.
    pub effect: Effect,
    pub(super) read: fn(&mut Settings, &str) -> Result<(), String>,
    pub(super) show: fn(&Settings) -> String,
    pub(super) copy: fn(&Settings, &mut Settings),
}

/// Whether this program honours a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It honours the key.
    Honoured,
    /// It accepts the key with a warning. The text says why the key has no effect.
    Warned(&'static str),
    /// It refuses any value but the default. The text says why.
    Refused(&'static str),
}

/// When a new value of a key takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// At once.
    AtOnce,
    /// After a restart.
    Restart,
}

/// The outcome of setting a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The value takes effect.
    Set,
    /// The key keeps its value until the program starts again.
    NeedsRestart,
    /// The key has no effect. The text says why.
    NoEffect(&'static str),
}

/// Why a value can't be set.
pub type SetError = Reason;

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Key {
    /// All keys, in the order of `SHOW CONFIG`.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        let mut all: Vec<_> = KEYS.iter().chain(OTHERS).collect();
        all.sort_unstable_by_key(|key| key.name);
        all.into_iter()
    }

    /// The key with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        let own = KEYS
            .binary_search_by_key(&name, |key| key.name)
            .ok()
            .map(|at| &KEYS[at]);
        own.or_else(|| OTHERS.iter().find(|key| key.name == name))
    }

    /// Whether PgBouncer does not know the key.
    #[must_use]
    pub fn is_own(&self) -> bool {
        OWN.contains(&self.name)
    }

    /// The value in `settings`, as `SHOW CONFIG` prints it.
    #[must_use]
    pub fn show(&self, settings: &Settings) -> String {
        (self.show)(settings)
    }

    /// Reads a value into `settings`, as a file's line does.
    ///
    /// # Errors
    /// The key does not accept the value, or is refused.
    pub(super) fn read(&self, settings: &mut Settings, text: &str) -> Result<Outcome, Reason> {
        match self.standing {
            Standing::Honoured => {
                let read = (self.read)(settings, text);
                read.map_err(|rule| Reason::BadValue(text.into(), rule.into()))?;
                Ok(Outcome::Set)
            }
            _ if text == self.default => Ok(Outcome::Set),
            Standing::Warned(why) => Ok(Outcome::NoEffect(why)),
            Standing::Refused(why) => Err(Reason::Refused(why)),
        }
    }
}

impl Settings {
    /// Sets one key while the program runs: the console's `SET`.
    ///
    /// # Errors
    /// The key does not exist, does not accept the value, or is refused.
    pub fn set(&mut self, name: &str, text: &str) -> Result<Outcome, SetError> {
        let key = Key::find(name).ok_or(Reason::UnknownKey)?;
        match (key.standing, key.effect) {
            (Standing::Honoured, Effect::Restart) => {
                let read = key.read(&mut self.clone(), text);
                read.map(|_| Outcome::NeedsRestart)
            }
            _ => key.read(self, text),
        }
    }
}

/// The keys that PgBouncer does not know.
const OWN: [&str; 10] = [
    "host_check_failures",
    "host_check_period",
    "host_check_successes",
    "http_listen",
    "max_replica_lag",
    "multiplex",
    "server_login_concurrency",
    "strict_commit",
    "target_session_attrs",
    "threads",
];

macro_rules! others {
    ($($name:ident = $default:literal, $standing:ident $why:literal;)+) => {
        /// The keys without a field.
        static OTHERS: &[Key] = &[$(Key {
            name: stringify!($name),
            default: $default,
            about: $why,
            standing: Standing::$standing($why),
            effect: Effect::Restart,
            read: |_, _| Ok(()),
            show: |_| $default.to_owned(),
            copy: |_, _| (),
        },)+];
    };
}

others! {
    auth_ident_file = "", Refused "maps of user names are not supported";
    auth_ldap_options = "", Refused "LDAP is not supported";
    client_tls_ciphers = "default", Warned "TLS 1.2 uses the library's own safe suites";
    client_tls_dheparams = "auto", Warned "no suite with such parameters is offered";
    client_tls_ecdhcurve = "auto", Warned "the library chooses the curve";
    conffile = "", Refused "the command line names the configuration file";
    dns_zone_check_period = "0",
        Warned "zones are not watched; dns_max_ttl bounds the age of an address";
    job_name = "pgbouncer",
        Warned "it names a service of Windows; syslog_ident is the name in the log";
    peer_id = "0", Refused "one process uses all cores, so there are no peers";
    pkt_buf = "4096", Warned "messages are not copied into a buffer of fixed size";
    resolv_conf = "", Warned "the operating system resolves names";
    sbuf_loopcnt = "5", Warned "the pool bounds how long one connection is served";
    server_tls_ciphers = "default", Warned "TLS 1.2 uses the library's own safe suites";
    service_name = "pgbouncer", Refused "this is not a service of Windows";
    so_reuseport = "0", Warned "one process uses all cores";
    suspend_timeout = "10", Warned "there is no hand-over of sockets to another process";
}
