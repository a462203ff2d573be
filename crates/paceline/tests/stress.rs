//! Everything at once, many times, and misuse by chance: `cargo xtask stress` runs this optimized
//! and for long.

mod misuse;
mod support;

mod stress {
    mod group_stress;
    mod messages;
    mod task_stress;
    mod traffic;
}
