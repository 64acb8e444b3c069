//! Credentials and certificates that are replaced while the daemon runs, and that do not fit for a while in between.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::chaos::RECOVERY;
use crate::chaos::pki::{ServiceAccount, write};
use crate::chaos::plan::Kind;
use crate::chaos::stage::{Stage, Victim};
use crate::failure::{Doing, Failure};
use crate::kinds;

/// So long nothing fits.
const IN_BETWEEN: Duration = Duration::from_secs(4);
/// A token that is good for less would expire before the daemon has started; the server itself remembers for 10 s more
/// that it was good.
const TOKEN: Duration = Duration::from_secs(5);
const REMEMBERED: Duration = Duration::from_secs(10);
/// Longer than any scenario lasts.
const LONG: Duration = Duration::from_secs(3600);
/// Between the two files of a certificate that is replaced.
const HALF_WAY: Duration = Duration::from_millis(500);

/// The token expires, the file then holds one that has expired already, and at last a good one.
pub fn token(stage: &mut Stage<'_, '_>) -> Result<(), Failure> {
    let account = service_account(stage)?;
    let file = stage.place.dir.join("token");
    write(&file, &account.token(TOKEN)?)?;
    let kubeconfig = kubeconfig(stage, json!({ "tokenFile": file }), None)?;
    stage.use_kubeconfig(kubeconfig);
    stage.start_daemon()?;
    crate::chaos::stage::sleep(TOKEN + REMEMBERED)?;
    let late = late_garbage(stage)?;
    stage.quiet(IN_BETWEEN)?;
    write(&file, &account.token(Duration::ZERO)?)?;
    stage.quiet(IN_BETWEEN)?;
    still_there(stage, &late)?;
    write(&file, &account.token(LONG)?)?;
    goes(stage, &late)
}

/// The API server takes certificates of another authority only, and the daemon gets one of these a while later, first
/// the certificate and then the key.
pub fn certificate(stage: &mut Stage<'_, '_>) -> Result<(), Failure> {
    let [certificate, key] = ["client.crt", "client.key"].map(|name| stage.place.dir.join(name));
    let before = stage.place.pki.client_authority();
    stage.place.pki.write_client(before, &certificate, &key)?;
    let user = json!({ "client-certificate": certificate, "client-key": key });
    let kubeconfig = kubeconfig(stage, user, None)?;
    stage.use_kubeconfig(kubeconfig);
    stage.start_daemon()?;
    stage.wait_a_moment(IN_BETWEEN)?;
    stage.place.pki.set_client_authority(1 - before)?;
    stage.kill(Victim::ApiServer, Duration::ZERO)?;
    let late = late_garbage(stage)?;
    stage.quiet(IN_BETWEEN)?;
    still_there(stage, &late)?;
    let [new_certificate, new_key] = ["next.crt", "next.key"].map(|name| stage.place.dir.join(name));
    stage.place.pki.write_client(1 - before, &new_certificate, &new_key)?;
    let rename = |from: PathBuf, to: PathBuf| {
        fs::rename(&from, &to).doing(|| format!("cannot replace {}", to.display()))
    };
    rename(new_certificate, certificate)?;
    crate::chaos::stage::sleep(HALF_WAY)?;
    rename(new_key, key)?;
    goes(stage, &late)
}

/// The API server has a certificate of another authority, which the daemon's file names a while later.
pub fn authority(stage: &mut Stage<'_, '_>) -> Result<(), Failure> {
    let file = stage.place.dir.join("authority.crt");
    let before = stage.place.pki.server_authority();
    write(&file, &stage.place.pki.authority(before))?;
    let account = service_account(stage)?;
    let user = json!({ "token": account.token(LONG)? });
    let kubeconfig = kubeconfig(stage, user, Some(&file))?;
    stage.use_kubeconfig(kubeconfig);
    stage.start_daemon()?;
    stage.wait_a_moment(IN_BETWEEN)?;
    stage.place.pki.set_server(1 - before)?;
    stage.kill(Victim::ApiServer, Duration::ZERO)?;
    let late = late_garbage(stage)?;
    stage.quiet(IN_BETWEEN)?;
    still_there(stage, &late)?;
    write(&file, &stage.place.pki.authority(1 - before))?;
    goes(stage, &late)
}

/// Something to collect that the daemon cannot know of yet.
fn late_garbage(stage: &mut Stage<'_, '_>) -> Result<String, Failure> {
    stage.canary("default", Kind::Secret)
}

/// It does not fit indeed.
fn still_there(stage: &Stage<'_, '_>, path: &str) -> Result<(), Failure> {
    let found = stage.place.api.get(path)?;
    found.map(drop).ok_or_else(|| Failure::new("it collects with credentials that the server does not take"))
}

fn goes(stage: &mut Stage<'_, '_>, path: &str) -> Result<(), Failure> {
    let took = stage.canary_goes(path, RECOVERY)?;
    stage.note(format!("collects {:.1} s after the replacement", took.as_secs_f64()));
    Ok(())
}

fn service_account(stage: &Stage<'_, '_>) -> Result<ServiceAccount, Failure> {
    let path = kinds::service_account().path("kube-system", "gc-daemon");
    let found = stage.place.api.get(&path)?.unwrap_or_default();
    let uid = found["metadata"]["uid"].as_str().ok_or_else(|| Failure::new("the daemon has no account"))?;
    Ok(ServiceAccount { uid: uid.into(), key: stage.place.rig.service_account_key() })
}

/// The daemon's kubeconfig with another user, and another authority where one is given.
fn kubeconfig(stage: &Stage<'_, '_>, user: Value, authority: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    let path = stage.place.rig.daemon_kubeconfig();
    let usual = fs::read_to_string(&path).doing(|| format!("cannot read {}", path.display()))?;
    let mut kubeconfig: Value = serde_json::from_str(&usual).doing(|| "a kubeconfig of ours".into())?;
    kubeconfig["users"][0]["user"] = user;
    if let Some(file) = authority {
        kubeconfig["clusters"][0]["cluster"]["certificate-authority"] = json!(file);
    }
    let path = stage.place.dir.join("daemon.kubeconfig");
    fs::write(&path, kubeconfig.to_string()).doing(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
