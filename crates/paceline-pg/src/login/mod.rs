//! How a client logs in, and how the front-end logs in at a server.
