//! The ownership graph: changes in, effects out.
