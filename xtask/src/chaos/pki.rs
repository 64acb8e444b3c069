//! Certificates and tokens that are replaced while they are in use.

use std::cell::Cell;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    SanType, SigningKey,
};
use serde_json::{Value, json};

use crate::failure::{Doing, Failure};
use crate::rig::DAEMON_USER;

/// Two of everything that can be rotated.
pub struct Pki {
    dir: PathBuf,
    servers: [Authority; 2],
    clients: [Authority; 2],
    /// Which of them are in use.
    server: Cell<usize>,
    client: Cell<usize>,
}

type Authority = CertifiedIssuer<'static, KeyPair>;

impl Pki {
    /// New authorities, and a certificate of the first one for the server.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub fn new(dir: &Path) -> Result<Pki, Failure> {
        let servers = [authority("servers 0")?, authority("servers 1")?];
        let clients = [authority("clients 0")?, authority("clients 1")?];
        let pki = Pki { dir: dir.into(), servers, clients, server: Cell::new(0), client: Cell::new(0) };
        write(&pki.both_authorities(), &format!("{}{}", pki.servers[0].pem(), pki.servers[1].pem()))?;
        pki.set_server(0)?;
        pki.set_client_authority(0)?;
        Ok(pki)
    }

    /// The flags with which kube-apiserver uses these files.
    pub fn apiserver_flags(&self) -> Vec<String> {
        let flag = |name: &str, file: &str| format!("--{name}={}", self.dir.join(file).display());
        vec![
            flag("tls-cert-file", "server.crt"),
            flag("tls-private-key-file", "server.key"),
            flag("client-ca-file", "clients.crt"),
        ]
    }

    /// The authorities of the server's certificates, both of them.
    pub fn both_authorities(&self) -> PathBuf {
        self.dir.join("servers.crt")
    }

    /// The certificate of one of the server's authorities, in PEM.
    pub fn authority(&self, which: usize) -> String {
        self.servers[which].pem()
    }

    /// Which authority signed the server's certificate.
    pub fn server_authority(&self) -> usize {
        self.server.get()
    }

    /// Whose client certificates the server takes.
    pub fn client_authority(&self) -> usize {
        self.client.get()
    }

    /// What the server presents when it starts next.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub fn set_server(&self, which: usize) -> Result<(), Failure> {
        self.server.set(which);
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.subject_alt_names.push(SanType::IpAddress(IpAddr::from([127, 0, 0, 1])));
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        self.issue(&params, &self.servers[which], &self.dir.join("server.crt"), &self.dir.join("server.key"))
    }

    /// Whose client certificates the server takes when it starts next.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn set_client_authority(&self, which: usize) -> Result<(), Failure> {
        self.client.set(which);
        write(&self.dir.join("clients.crt"), &self.clients[which].pem())
    }

    /// Writes a client certificate for the daemon, and its key.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub fn write_client(&self, which: usize, certificate: &Path, key: &Path) -> Result<(), Failure> {
        let mut params = CertificateParams::default();
        // The user's name; what it may do hangs on that alone.
        params.distinguished_name.push(DnType::CommonName, DAEMON_USER);
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        self.issue(&params, &self.clients[which], certificate, key)
    }

    fn issue(
        &self,
        params: &CertificateParams,
        authority: &Authority,
        certificate: &Path,
        key: &Path,
    ) -> Result<(), Failure> {
        let pair = KeyPair::generate().doing(|| "cannot generate a key".into())?;
        let issued = params.signed_by(&pair, authority).doing(|| "cannot sign a certificate".into())?;
        write(key, &pair.serialize_pem())?;
        write(certificate, &issued.pem())
    }
}

/// Replaces a file as a whole, as Kubernetes does with what it mounts: nobody ever sees half of it.
///
/// # Errors
///
/// When it cannot be written.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let new = path.with_extension("new");
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, path))
        .doing(|| format!("cannot write {}", path.display()))
}

fn authority(name: &str) -> Result<Authority, Failure> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().doing(|| "cannot generate a key".into())?;
    CertifiedIssuer::self_signed(params, key).doing(|| "cannot make an authority".into())
}

/// A token of a service account, as the API server itself would make it.
pub struct ServiceAccount {
    /// Of the ServiceAccount object.
    pub uid: String,
    /// The key that signs such tokens, in PEM.
    pub key: PathBuf,
}

/// What the server's clock may differ from ours: it takes a token for so long after its time.
pub const LEEWAY: Duration = Duration::from_secs(60);

impl ServiceAccount {
    /// A token for the daemon's account that the server takes for so long, leeway included; with nothing, none that it
    /// takes at all.
    ///
    /// # Errors
    ///
    /// When the key cannot be used.
    pub fn token(&self, valid_for: Duration) -> Result<String, Failure> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let expires_s = (since + valid_for).saturating_sub(LEEWAY).as_secs();
        let issued_s = since.saturating_sub(Duration::from_secs(3600)).as_secs();
        let claims = json!({
            "iss": "https://kubernetes.default.svc",
            "aud": ["https://kubernetes.default.svc"],
            "sub": DAEMON_USER,
            "iat": issued_s, "nbf": issued_s, "exp": expires_s,
            // Two tokens made in the same second are two tokens.
            "jti": format!("{since:?}"),
            "kubernetes.io": {
                "namespace": "kube-system",
                "serviceaccount": { "name": "gc-daemon", "uid": self.uid },
            },
        });
        let pem = fs::read_to_string(&self.key).doing(|| "cannot read the service-account key".into())?;
        let key = KeyPair::from_pem(&pem).doing(|| "cannot read the service-account key".into())?;
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({ "alg": "ES256", "typ": "JWT" })), part(&claims));
        let signature = key.sign(signed.as_bytes()).doing(|| "cannot sign a token".into())?;
        let raw = raw_signature(&signature).ok_or_else(|| Failure::new("no P-256 signature in DER"))?;
        Ok(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(raw)))
    }
}

/// JWTs have the two numbers of an ECDSA signature side by side (RFC 7518, 3.4), keys here sign in DER: a sequence of
/// two integers, each without leading zeros and with one where its first bit is set.
fn raw_signature(der: &[u8]) -> Option<[u8; 64]> {
    let mut raw = [0; 64];
    let mut rest = der.strip_prefix(&[0x30])?.get(1..)?;
    for half in raw.chunks_mut(32) {
        let length = usize::from(*rest.strip_prefix(&[0x02])?.first()?);
        let (number, after) = rest.get(2..)?.split_at_checked(length)?;
        let number = number.strip_prefix(&[0]).unwrap_or(number);
        half.get_mut(32usize.checked_sub(number.len())?..)?.copy_from_slice(number);
        rest = after;
    }
    rest.is_empty().then_some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_in_der_becomes_two_numbers_of_32_bytes() {
        let mut long = vec![0x30, 0x26, 0x02, 0x21, 0x00];
        long.extend([0xff; 32]);
        long.extend([0x02, 0x01, 0x05]);
        let raw = raw_signature(&long).unwrap();
        assert_eq!(raw[..32], [0xff; 32]);
        assert_eq!((raw[62], raw[63]), (0, 5));
        for bad in [&long[..long.len() - 1], &[], &[0x30, 0x00], &[0x30, 0x03, 0x02, 0x21, 0x00]] {
            assert_eq!(raw_signature(bad), None, "{bad:?}");
        }
    }
}
