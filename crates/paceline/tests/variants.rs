//! The variants of the pattern: groups of callers on one connection, levels, several sets, other
//! sources, pinned handles.

mod support;

mod variants {
    mod bound;
    mod bound_connecting;
    mod bound_drops;
    mod bound_ends;
    mod bound_hazards;
    mod bound_places;
    mod bound_stress;
    mod client_and_server;
    mod concurrent;
    mod concurrent_by_hand;
    mod level_moves;
    mod levels;
    mod per_source;
    mod pins;
    mod pins_elastic;
    mod pins_ends;
    mod queues;
    mod rings;
    mod roaming_by_hand;
    mod s1_calls_end_with_their_pool;
    mod semaphores;
    mod sets;
    mod sources;
    mod stays;
}
