//! Settings that are one of several words.

use super::value::Value;

macro_rules! words {
    ($($(#[doc = $about:literal])+ $name:ident: $first:ident
        { $(
            $(#[doc = $doc:literal])+ $variant:ident = $word:literal $(| $alias:literal)*
        ),+ $(,)? })+) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[doc = $doc])+ $variant,)+ }

        impl $name {
            /// Its word in the configuration.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl Default for $name {
            fn default() -> Self { Self::$first }
        }

        impl Value for $name {
            fn read(text: &str) -> Result<Self, String> {
                $(if [$word $(, $alias)*].iter().any(|word| text.eq_ignore_ascii_case(word)) {
                    return Ok(Self::$variant);
                })+
                Err(format!("expected one of {}", [$($word),+].join(", ")))
            }

            fn show(&self) -> String {
                self.word().to_owned()
            }
        }
    )+};
}

words! {
    /// When a server connection becomes free for other clients.
    PoolMode: Session {
        /// When the client leaves.
        Session = "session",
        /// After each transaction.
        Transaction = "transaction",
        /// After each statement; transaction blocks are refused.
        Statement = "statement",
    }
    /// How clients authenticate.
    AuthType: Md5 {
        /// No check, and any user name is admitted.
        Any = "any",
        /// No check, but the user must exist.
        Trust = "trust",
        /// The password in clear text.
        Plain = "plain" | "password",
        /// The older hash; a user with a SCRAM secret uses SCRAM.
        Md5 = "md5",
        /// SCRAM-SHA-256.
        Scram = "scram-sha-256",
        /// The rules of `auth_hba_file` decide.
        Hba = "hba",
    }
    /// Whether TLS is used, and what is checked.
    SslMode: Disable {
        /// No TLS.
        Disable = "disable",
        /// TLS if the client asks for it.
        Allow = "allow",
        /// TLS if the other side can.
        Prefer = "prefer",
        /// TLS, or no connection.
        Require = "require",
        /// TLS, and a certificate that the CA file vouches for.
        VerifyCa = "verify-ca",
        /// As `verify-ca`; a server's certificate must also be for its host name.
        VerifyFull = "verify-full",
    }
    /// Which of several hosts a new connection uses.
    LoadBalance: RoundRobin {
        /// The first that is reachable.
        Disable = "disable",
        /// Each in its turn.
        RoundRobin = "round-robin",
    }
    /// How the front-end finds the roles of several hosts.
    Roles: Off {
        /// It does not: the hosts are alike, as in PgBouncer.
        Off = "off",
        /// By `in_hot_standby` of each host: one primary, the others replicas.
        Auto = "auto",
        /// All accept writes (a distributed engine): the least busy one is used.
        Equal = "equal",
    }
    /// Which role a server must have for a client.
    TargetSession: Any {
        /// Any host.
        Any = "any",
        /// A host that accepts writes.
        ReadWrite = "read-write",
        /// A host that refuses writes.
        ReadOnly = "read-only",
        /// The primary.
        Primary = "primary",
        /// A replica.
        Standby = "standby",
        /// A replica, or the primary while no replica is usable.
        PreferStandby = "prefer-standby",
    }
    /// The facility of syslog.
    Facility: Daemon {
        /// `LOG_AUTH`.
        Auth = "auth",
        /// `LOG_AUTHPRIV`.
        AuthPriv = "authpriv",
        /// `LOG_DAEMON`.
        Daemon = "daemon",
        /// `LOG_USER`.
        User = "user",
        /// `LOG_LOCAL0`.
        Local0 = "local0",
        /// `LOG_LOCAL1`.
        Local1 = "local1",
        /// `LOG_LOCAL2`.
        Local2 = "local2",
        /// `LOG_LOCAL3`.
        Local3 = "local3",
        /// `LOG_LOCAL4`.
        Local4 = "local4",
        /// `LOG_LOCAL5`.
        Local5 = "local5",
        /// `LOG_LOCAL6`.
        Local6 = "local6",
        /// `LOG_LOCAL7`.
        Local7 = "local7",
    }
}

impl Facility {
    /// Its number in the syslog protocol.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::User => 1,
            Self::Daemon => 3,
            Self::Auth => 4,
            Self::AuthPriv => 10,
            local => 16 + (local as u8 - Self::Local0 as u8),
        }
    }
}
