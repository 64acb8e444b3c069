//! The simulator on a port, for trying things with kubectl:
//! `cargo run -p gc-tests --example api-server -- 8001`, then `kubectl --server http://127.0.0.1:8001 get ns`.

use std::io::Read;

use gc_tests::http::Front;
use gc_tests::sim::{ApiServer, Timestamp};

fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|p| p.parse().ok()).unwrap_or(0);
    let front = Front::start_on(ApiServer::started_at(7, Timestamp::now()), port)?;
    println!("{} (ends with the standard input)", front.url());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
