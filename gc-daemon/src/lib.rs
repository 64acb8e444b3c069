//! The garbage collector as one binary: flags, threads, the event loop, health and metrics.
