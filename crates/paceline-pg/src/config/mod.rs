//! What the configuration files say.
