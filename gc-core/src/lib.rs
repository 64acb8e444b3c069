//! The garbage collector's decisions, as state machines that the caller drives.
