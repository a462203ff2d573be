//! Everything at once, many times: `cargo xtask stress` runs this optimized and for long.

mod support;

mod stress {
    mod group_stress;
    mod messages;
    mod task_stress;
    mod traffic;
}
