//! Runs the experiment against an API server without credentials, beside which a garbage collector runs:
//! `cargo run -p gc-tests --example experiment -- http://127.0.0.1:8001`.

use std::time::Duration;

use gc_client::{Client, Config, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("give the URL of an API server")?;
    let client = Client::new(&Config::plain(&url), &Options::default())?;
    gc_tests::experiment::run(&client, "experiment", Duration::from_secs(20), &mut std::io::stdout())?;
    Ok(())
}
