//! The pooler as its users have it: the program, clients, and a real PostgreSQL behind it.

mod support;

#[path = "front/bank.rs"]
mod bank;
#[path = "front/cancels.rs"]
mod cancels;
#[path = "front/clients.rs"]
mod clients;
#[path = "front/hazards.rs"]
mod hazards;
#[path = "front/operations.rs"]
mod operations;
