//! The named promises (the glossary of the crate has them), and the wakes that keep them.

mod support;

mod promises {
    mod adaptive_by_hand;
    mod adaptive_wake;
    mod elastic;
    mod ends;
    mod ends_in_chains;
    mod errata;
    mod f1_fairness;
    mod given_kinds;
    mod h1_one_thread_per_handle;
    mod h2_kept_output;
    mod h2_no_lost_event;
    mod h3_nothing_after_deregistration;
    mod h4_panics_by_policy;
    mod interest_toggled;
    mod kinds;
    mod l1_at_most_one_leader;
    mod l2_no_lost_lead;
    mod l2_surprises;
    mod l3_promote_before_process;
    mod l4_no_herd;
    mod l5_drops;
    mod l5_drops_shared;
    mod l5_failures_take_nothing;
    mod l5_own_panics_abort;
    mod leader_spin;
    mod r1_any_input;
    mod s1_linger;
    mod s1_shutdown_ends_in_time;
    mod s1_step_by_step;
    mod s3_drop_never_hangs;
    mod watcher;
}
