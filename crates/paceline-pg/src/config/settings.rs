//! The section `[pgbouncer]`: one table declares the fields, their defaults and their keys.
//!
//! A key with `Restart` keeps its value until the program starts again.

use std::time::Duration;

use super::{
    keys::{Effect, Key, Standing},
    value::{not_console, within, AuthDatabase, Mode, Names, TlsVersions, Value},
    words::{AuthType, Facility, PoolMode, SslMode, TargetSession},
};

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:literal
        $(if $check:ident)? $(in $range:expr)?, $effect:ident;)+) => {
        /// The values of the section `[pgbouncer]`. A time of zero is off, an empty text is unset.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($name: default::<$type>($default),)+ }
            }
        }

        /// The keys that have a field, in the order of their names.
        pub(super) static KEYS: &[Key] = &[$(Key {
            name: stringify!($name),
            default: $default,
            about: concat!($($doc),+),
            standing: Standing::Honoured,
            effect: Effect::$effect,
            read: |settings, text| {
                let value: $type = Value::read(text)?;
                $(within(&value, $range)?;)?
                $($check(&value)?;)?
                settings.$name = value;
                Ok(())
            },
            show: |settings| settings.$name.show(),
            copy: |from, to| to.$name.clone_from(&from.$name),
        },)+];
    };
}

/// Reads a default of the table. A test reads them all.
fn default<T: Value>(text: &str) -> T {
    match T::read(text) {
        Ok(value) => value,
        Err(rule) => unreachable!("the default \"{text}\": {rule}"),
    }
}

/// The largest number that PgBouncer takes.
const MOST: u32 = i32::MAX as u32;

settings! {
    /// Users that may give every command on the console.
    admin_users: Names = "", AtOnce;
    /// Add the client's address and port to the application name at its start.
    application_name_add_host: bool = "0", AtOnce;
    /// The entry of `[databases]` where `auth_query` runs; unset: the client's own database.
    auth_dbname: AuthDatabase = "" if not_console, AtOnce;
    /// The file of users and their secrets.
    auth_file: String = "", AtOnce;
    /// The rules for `auth_type = hba`.
    auth_hba_file: String = "", AtOnce;
    /// The query that finds a user's secret; `$1` is its name.
    auth_query: String =
        "SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END \
         FROM pg_authid WHERE rolname=$1 AND rolcanlogin", AtOnce;
    /// How clients authenticate.
    auth_type: AuthType = "md5", AtOnce;
    /// The user that asks `auth_query` for users that `auth_file` lacks.
    auth_user: String = "", AtOnce;
    /// How long an unused database made from `*` is kept.
    autodb_idle_timeout: Duration = "3600", AtOnce;
    /// How long a cancel waits for its connection.
    cancel_wait_timeout: Duration = "10", AtOnce;
    /// How long a client may be idle outside of a transaction.
    client_idle_timeout: Duration = "0", AtOnce;
    /// How long a login of a client may take.
    client_login_timeout: Duration = "60", AtOnce;
    /// The cipher suites of TLS 1.3 for clients, with colons between; unset: all.
    client_tls13_ciphers: String = "", AtOnce;
    /// The authorities that vouch for clients' certificates.
    client_tls_ca_file: String = "", AtOnce;
    /// The certificate that clients see.
    client_tls_cert_file: String = "", AtOnce;
    /// The private key of that certificate.
    client_tls_key_file: String = "", AtOnce;
    /// The versions of TLS for clients.
    client_tls_protocols: TlsVersions = "secure", AtOnce;
    /// Whether clients use TLS.
    client_tls_sslmode: SslMode = "disable", AtOnce;
    /// The most server connections of a pool (one user of one database); 0: no limit.
    default_pool_size: u32 = "20" in 0..=MOST, AtOnce;
    /// Refuse simple queries.
    disable_pqexec: bool = "0", Restart;
    /// How long an address found for a host name holds.
    dns_max_ttl: Duration = "15", AtOnce;
    /// How long a failure to find a host name holds.
    dns_nxdomain_ttl: Duration = "15", AtOnce;
    /// How many checks of a host fail before it counts as down.
    host_check_failures: u32 = "2" in 1..=1000, AtOnce;
    /// How often the role and health of each host is checked, where `roles` is not `off`.
    host_check_period: Duration = "1", AtOnce;
    /// How many checks of a host that was down succeed before it is used.
    host_check_successes: u32 = "2" in 1..=1000, AtOnce;
    /// The address and port of metrics (`/metrics`) and of the live page (`/`); unset: none.
    http_listen: String = "", Restart;
    /// How long a client may be idle in a transaction.
    idle_transaction_timeout: Duration = "0", AtOnce;
    /// Start-up parameters of clients that are ignored instead of refused.
    ignore_startup_parameters: Names = "", AtOnce;
    /// The addresses to listen on for TCP; `*`: all; unset: Unix sockets alone.
    listen_addr: Names = "", Restart;
    /// How many new connections the kernel keeps until they are accepted.
    listen_backlog: u32 = "128" in 0..=MOST, Restart;
    /// The port, also that of the Unix socket.
    listen_port: u16 = "6432", Restart;
    /// Log each login of a client and each new server connection.
    log_connections: bool = "1", AtOnce;
    /// Log why each connection is closed.
    log_disconnections: bool = "1", AtOnce;
    /// Log each error that the front-end itself sends to a client.
    log_pooler_errors: bool = "1", AtOnce;
    /// Log the counters every `stats_period`.
    log_stats: bool = "1", AtOnce;
    /// The file of the log.
    logfile: String = "", AtOnce;
    /// A notice that each client gets after its login.
    login_notify_message: String = "", AtOnce;
    /// The most clients.
    max_client_conn: u32 = "100" in 0..=MOST, AtOnce;
    /// The most clients of one database; 0: no limit.
    max_db_client_connections: u32 = "0" in 0..=MOST, AtOnce;
    /// The most server connections of one database; 0: no limit.
    max_db_connections: u32 = "0" in 0..=MOST, AtOnce;
    /// The longest message that is passed on.
    max_packet_size: u32 = "2147483647" in 64..=u32::MAX, AtOnce;
    /// How many prepared statements one server connection keeps; 0: names pass unchanged.
    max_prepared_statements: u32 = "200" in 0..=MOST, AtOnce;
    /// How far a replica may lag behind its primary before no client reads from it; 0: any.
    max_replica_lag: Duration = "0", AtOnce;
    /// The most clients of one user; 0: no limit.
    max_user_client_connections: u32 = "0" in 0..=MOST, AtOnce;
    /// The most server connections of one user; 0: no limit.
    max_user_connections: u32 = "0" in 0..=MOST, AtOnce;
    /// How many server connections a pool keeps while it has clients.
    min_pool_size: u32 = "0" in 0..=MOST, AtOnce;
    /// How many requests share one server connection in statement mode; 0: none.
    multiplex: u32 = "0" in 0..=1000, AtOnce;
    /// The file that holds the number of the process.
    pidfile: String = "", Restart;
    /// How long an empty pool is kept; 0: for ever.
    pool_idle_timeout: Duration = "0", AtOnce;
    /// When a server connection becomes free for other clients.
    pool_mode: PoolMode = "session", AtOnce;
    /// How long a query may run.
    query_timeout: Duration = "0", AtOnce;
    /// After how many seconds a waiting client gets a notice; 0: none.
    query_wait_notify: u32 = "5" in 0..=MOST, AtOnce;
    /// How long a client waits for a server connection.
    query_wait_timeout: Duration = "120", AtOnce;
    /// How many further connections a pool may open for clients that wait long.
    reserve_pool_size: u32 = "0" in 0..=MOST, AtOnce;
    /// How long a client waits before its pool may use the reserve; 0: no reserve.
    reserve_pool_timeout: Duration = "5", AtOnce;
    /// The iterations of SCRAM for secrets that are made from plain passwords.
    scram_iterations: u32 = "4096" in 1..=10_000_000, AtOnce;
    /// How long a server connection may be idle before it is checked.
    server_check_delay: Duration = "30", AtOnce;
    /// The query of that check; `<empty>`: an empty query; unset: no check.
    server_check_query: String = "<empty>", AtOnce;
    /// How long a connect and login at a server may take.
    server_connect_timeout: Duration = "15", AtOnce;
    /// Close a server connection that must be replaced, even while a session holds it.
    server_fast_close: bool = "0", AtOnce;
    /// How long an unused server connection is kept.
    server_idle_timeout: Duration = "600", AtOnce;
    /// How long a server connection lives; 0: it is used once.
    server_lifetime: Duration = "3600", AtOnce;
    /// How many server connections of a pool may log in at the same time.
    server_login_concurrency: u32 = "4" in 1..=1000, AtOnce;
    /// How long after a failed login at a server the next is tried.
    server_login_retry: Duration = "15", AtOnce;
    /// The query that cleans a session before another client gets it.
    server_reset_query: String = "DISCARD ALL", AtOnce;
    /// Send that query in all pool modes, instead of session mode alone.
    server_reset_query_always: bool = "0", AtOnce;
    /// Use idle server connections in turn, instead of the last used first.
    server_round_robin: bool = "0", AtOnce;
    /// The cipher suites of TLS 1.3 for servers, with colons between; unset: all.
    server_tls13_ciphers: String = "", AtOnce;
    /// The authorities that vouch for servers' certificates.
    server_tls_ca_file: String = "", AtOnce;
    /// The certificate that servers see.
    server_tls_cert_file: String = "", AtOnce;
    /// The private key of that certificate.
    server_tls_key_file: String = "", AtOnce;
    /// The versions of TLS for servers.
    server_tls_protocols: TlsVersions = "secure", AtOnce;
    /// Whether TLS is used to servers.
    server_tls_sslmode: SslMode = "prefer", AtOnce;
    /// The period of the averages and of the line of counters in the log, in seconds.
    stats_period: u32 = "60" in 1..=MOST, AtOnce;
    /// Users that may see everything on the console and change nothing.
    stats_users: Names = "", AtOnce;
    /// Report a commit that did not wait for its standby as unknown instead of done.
    strict_commit: bool = "0", AtOnce;
    /// Log to syslog.
    syslog: bool = "0", AtOnce;
    /// The facility for syslog.
    syslog_facility: Facility = "daemon", AtOnce;
    /// The name for syslog.
    syslog_ident: String = "pgbouncer", AtOnce;
    /// Which role a server must have, where `roles` is not `off`.
    target_session_attrs: TargetSession = "any", AtOnce;
    /// The kernel accepts a connection only with its first data; above 1: for so many seconds.
    tcp_defer_accept: u32 = "1" in 0..=MOST, AtOnce;
    /// Let the kernel check idle connections.
    tcp_keepalive: bool = "1", AtOnce;
    /// How many such checks fail before a connection is broken; 0: the kernel's default.
    tcp_keepcnt: u32 = "0" in 0..=MOST, AtOnce;
    /// After how many idle seconds the first is made; 0: the kernel's default.
    tcp_keepidle: u32 = "0" in 0..=MOST, AtOnce;
    /// The seconds between two of them; 0: the kernel's default.
    tcp_keepintvl: u32 = "0" in 0..=MOST, AtOnce;
    /// The size of a socket's buffers; 0: the kernel's default.
    tcp_socket_buffer: u32 = "0" in 0..=MOST, AtOnce;
    /// After how many milliseconds unacknowledged data break a connection; 0: the kernel's.
    tcp_user_timeout: u32 = "0" in 0..=MOST, AtOnce;
    /// How many threads serve; 0: one for each core and one more.
    threads: u32 = "0" in 0..=4096, Restart;
    /// Further parameters that are kept for each client.
    track_extra_parameters: Names = "IntervalStyle", Restart;
    /// How long a transaction may take.
    transaction_timeout: Duration = "0", AtOnce;
    /// The folder of the Unix socket; unset: none; `@` at its start: the abstract namespace.
    unix_socket_dir: String = "/tmp", Restart;
    /// The group of the Unix socket.
    unix_socket_group: String = "", Restart;
    /// The rights of the Unix socket.
    unix_socket_mode: Mode = "0777", Restart;
    /// The user that the process becomes, if it is started as root.
    user: String = "", Restart;
    /// How much is logged: 0 to 3.
    verbose: u32 = "0" in 0..=MOST, AtOnce;
}
