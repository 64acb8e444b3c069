//! What the repository does with itself.
fn main() {}
