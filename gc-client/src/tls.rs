//! All use of rustls, and of the parts of ureq that it excludes from semantic versioning (`ureq::unversioned`).
//!
//! The connector is our own, for two reasons: ureq's cannot check a server's certificate against a name other than
//! the URL's host (the kubeconfig's `tls-server-name`), and it panics on a client certificate that rustls refuses.

use std::io::{self, BufRead, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SignatureScheme, StreamOwned};
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, NextTimeout, SocksConnector,
    TcpConnector, Transport, TransportAdapter,
};

use crate::config::{ConfigError, Place, TlsSettings};
use crate::secret::Secret;

/// Where systems keep the roots they trust, as Go looks for them. The first that exists is used.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The bytes that a TLS configuration is made of, as last read. Equal bytes mean that nothing need be built anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Material {
    /// The roots in PEM; `None` for the system's.
    pub(crate) roots: Option<Vec<u8>>,
    /// The client's certificate chain and its key, both in PEM.
    pub(crate) identity: Option<(Vec<u8>, Secret)>,
}

/// What the material's parts are called in an error.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    pub(crate) roots: Place,
    pub(crate) certificate: Place,
    pub(crate) key: Place,
}

/// Makes and checks the TLS configuration. Everything that rustls could refuse later is refused here.
pub(crate) fn client_config(
    settings: &TlsSettings,
    material: &Material,
    places: &Places,
) -> Result<Arc<ClientConfig>, ConfigError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| places.roots.error(&e.to_string(), "report this: the TLS library offers no protocol"))?;
    let builder = if settings.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(TrustAnyone(provider)))
    } else if settings.is_plain {
        // Only an `https` proxy would meet this, and it then fails rather than be trusted.
        builder.with_root_certificates(RootCertStore::empty())
    } else {
        builder.with_root_certificates(roots(material.roots.as_deref(), &places.roots)?)
    };
    let Some((chain, key)) = &material.identity else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let chain = certificates(chain, &places.certificate)?;
    let key = private_key(key, &places.key)?;
    let config = builder.with_client_auth_cert(chain, key).map_err(|error| identity_error(&error, places))?;
    Ok(Arc::new(config))
}

fn identity_error(error: &rustls::Error, places: &Places) -> ConfigError {
    let kinds = "use an RSA (2048 bits or more), ECDSA P-256, P-384 or Ed25519 key";
    match error {
        rustls::Error::InconsistentKeys(_) => places.key.error(
            "the key does not belong to the client certificate",
            "give the key that the certificate was made for",
        ),
        rustls::Error::InvalidCertificate(_) => places.certificate.error(
            &format!("the certificate cannot be used: {error}"),
            "give the client's certificate first and those that signed it after it, as X.509 v3 in PEM",
        ),
        rustls::Error::General(cause) => places.key.error(&format!("the key cannot be used: {cause}"), kinds),
        other => places.key.error(&format!("the key cannot be used: {other}"), kinds),
    }
}

fn roots(pem: Option<&[u8]>, place: &Place) -> Result<RootCertStore, ConfigError> {
    let mut store = RootCertStore::empty();
    let Some(pem) = pem else {
        let bundle = system_bundle(place)?;
        // A system's bundle may hold one certificate that rustls does not take; the others still count.
        store.add_parsable_certificates(CertificateDer::pem_slice_iter(&bundle).filter_map(Result::ok));
        if store.is_empty() {
            return Err(no_roots(place));
        }
        return Ok(store);
    };
    for certificate in certificates(pem, place)? {
        store.add(certificate).map_err(|error| {
            place.error(
                &format!("a certificate cannot be used as an authority: {error}"),
                "give the certificate of the authority that signed the server's certificate, as X.509 v3 in PEM",
            )
        })?;
    }
    Ok(store)
}

fn system_bundle(place: &Place) -> Result<Vec<u8>, ConfigError> {
    let named = std::env::var("SSL_CERT_FILE").ok();
    let paths = named.iter().map(String::as_str).chain(SYSTEM_BUNDLES);
    paths.into_iter().find_map(|path| std::fs::read(path).ok()).ok_or_else(|| no_roots(place))
}

fn no_roots(place: &Place) -> ConfigError {
    place.error(
        "no certificate authority is given and this system has no bundle of trusted ones",
        "set certificate-authority or certificate-authority-data of the cluster",
    )
}

fn certificates(pem: &[u8], place: &Place) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let mend = "give certificates in PEM, from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----";
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match parsed {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(place.error("there is no certificate in it", mend)),
        Err(_) => Err(place.error("it is not valid PEM", mend)),
    }
}

fn private_key(pem: &Secret, place: &Place) -> Result<PrivateKeyDer<'static>, ConfigError> {
    // The parser's error may quote the text, so it is not shown.
    PrivateKeyDer::from_pem_slice(pem.reveal()).map_err(|_| {
        place.error(
            "there is no private key in it",
            "give an unencrypted key in PEM (PKCS#8, PKCS#1 or SEC1); `openssl pkey` turns other forms into one",
        )
    })
}

/// Builds an agent whose connections go through the proxy if there is one, and through our TLS for `https`.
pub(crate) fn agent(config: ureq::config::Config, connector: TlsConnector) -> ureq::Agent {
    let chain =
        ().chain(SocksConnector::default())
            .chain(ConnectProxyConnector::default())
            .chain(TcpConnector::default())
            .chain(connector);
    ureq::Agent::with_parts(config, chain, RememberingResolver::default())
}

/// How long a resolved address is used. Long enough that a thousand requests a second ask no name server, short enough
/// that a moved API server is found soon.
const ADDRESSES_FOR: Duration = Duration::from_secs(10);

/// ureq resolves the host for every request, even on a connection that is open already.
#[derive(Debug, Default)]
struct RememberingResolver {
    inner: DefaultResolver,
    last: Mutex<Option<Remembered>>,
}

#[derive(Debug)]
struct Remembered {
    /// With the scheme, which decides the port where the authority has none.
    authority: String,
    addresses: Vec<SocketAddr>,
    resolved: Instant,
}

impl Resolver for RememberingResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let key = format!("{}://{authority}", uri.scheme_str().unwrap_or_default());
        // Not held while a name server is asked.
        if let Some(last) = &*self.last.lock().unwrap_or_else(PoisonError::into_inner)
            && last.authority == key
            && last.resolved.elapsed() < ADDRESSES_FOR
        {
            let mut addresses = self.inner.empty();
            last.addresses.iter().for_each(|address| addresses.push(*address));
            return Ok(addresses);
        }
        let addresses = self.inner.resolve(uri, config, timeout)?;
        let remembered =
            Remembered { authority: key, addresses: addresses.to_vec(), resolved: Instant::now() };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(remembered);
        Ok(addresses)
    }
}

/// Wraps a connection in TLS.
#[derive(Clone, Debug)]
pub(crate) struct TlsConnector {
    pub(crate) config: Arc<ClientConfig>,
    /// The API server's host as in its URL: only there does `server_name` hold, not at an `https` proxy.
    pub(crate) server_host: String,
    /// The kubeconfig's `tls-server-name`: sent as SNI and expected in the certificate.
    pub(crate) server_name: Option<ServerName<'static>>,
    /// Whether a connection keeps its buffers while nothing is under way: where there are few, and a request follows the
    /// other. To take so much memory and give it back again costs two calls of the system each time.
    pub(crate) keeps_buffers: bool,
}

impl TlsConnector {
    fn name_for(&self, host: &str) -> Result<ServerName<'static>, ureq::Error> {
        match &self.server_name {
            Some(name) if host == self.server_host => Ok(name.clone()),
            _ => server_name(host).ok_or(ureq::Error::Tls("the host is neither a DNS name nor an address")),
        }
    }
}

/// A DNS name or an IP address (IPv6 with or without brackets).
pub(crate) fn server_name(host: &str) -> Option<ServerName<'static>> {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned()).ok()
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(transport) = chained else { return Ok(None) };
        if !details.needs_tls() || transport.is_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let name = self.name_for(details.uri.host().unwrap_or_default())?;
        let mut conn = ClientConnection::new(self.config.clone(), name)?;
        let boxed: Box<dyn Transport> = Box::new(transport);
        let inner = TransportAdapter::new(boxed, details.current_time.clone());
        let mut sock = Counted { inner, records: Records::default() };
        sock.inner.set_timeout(details.timeout);
        conn.complete_io(&mut sock)?;
        log::trace!("a connection, its TLS handshake: {:?}", conn.handshake_kind());
        let buffers = ClearText { keeps: self.keeps_buffers, ..ClearText::default() };
        Ok(Some(Either::B(TlsTransport { buffers, stream: StreamOwned { conn, sock } })))
    }
}

/// A connection inside TLS.
pub(crate) struct TlsTransport {
    buffers: ClearText,
    stream: StreamOwned<ClientConnection, Counted>,
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.buffers.written += amount;
        if self.buffers.written < RECORD_BYTES { Ok(()) } else { self.send(timeout) }
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.send(timeout)?;
        self.stream.sock.inner.set_timeout(timeout);
        // While there is more of what has been decrypted, the buffer is used again at once: so lists are read.
        if self.stream.conn.wants_read() {
            // Nor is it let go while more has come already.
            if !self.stream.sock.inner.get_mut().buffers().can_use_input() {
                self.buffers.forget_what_was_consumed();
            }
            self.decrypt_what_comes()?;
        }
        let came = self.stream.fill_buf()?;
        self.buffers.make_room(CLEAR_TEXT_BYTES.max(self.buffers.filled.len() + came.len()));
        let room = &mut self.buffers.input[self.buffers.filled.end..];
        let amount = came.len().min(room.len());
        room[..amount].copy_from_slice(&came[..amount]);
        self.buffers.input_appended(amount);
        self.stream.consume(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // What has come without being asked for would be taken for the answer to what is asked next.
        let is_quiet = self.stream.conn.wants_read() && self.buffers.filled.is_empty();
        let transport = self.stream.sock.inner.get_mut();
        is_quiet && transport.buffers().input().is_empty() && transport.is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl TlsTransport {
    /// Sends what was written. A request's head and its body come separately, and go out together when the answer is
    /// awaited: one record and one packet for which the server is woken once.
    fn send(&mut self, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let written = std::mem::take(&mut self.buffers.written);
        if written == 0 {
            return Ok(());
        }
        self.stream.sock.inner.set_timeout(timeout);
        self.stream.write_all(self.buffers.output.get(..written).unwrap_or_default())?;
        // rustls drops the error of a write that it tried on the way; a flush reports it.
        self.stream.flush()?;
        self.buffers.forget_what_was_sent();
        Ok(())
    }

    /// Waits for a record. Left to itself, rustls looks at what it holds after every 4 KB that it takes in, and moves an
    /// unfinished record each time; here it looks when one is whole.
    fn decrypt_what_comes(&mut self) -> io::Result<()> {
        let StreamOwned { conn, sock } = &mut self.stream;
        // Where there is something to be written first, the stream does it as ever.
        while conn.wants_read() && !conn.wants_write() {
            let mut taken = conn.read_tls(sock)?;
            if taken == 0 {
                // The stream knows what that end means.
                return Ok(());
            }
            let mut is_full = false;
            while !is_full && taken < RECORD_BYTES && sock.inner.get_mut().buffers().can_use_input() {
                // Where there is something to be had, the only error is that there is no more room.
                match conn.read_tls(sock) {
                    Ok(more) => taken += more,
                    Err(_) => is_full = true,
                }
            }
            if std::mem::take(&mut sock.records.whole) == 0 && !is_full {
                continue;
            }
            if let Err(error) = conn.process_new_packets() {
                // The other side is told why, if it still listens.
                let _ = conn.write_tls(sock);
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsTransport").finish_non_exhaustive()
    }
}

/// What has been handed to rustls, counted in records (RFC 8446, 5.1: a type, a version, and the length of what follows).
#[derive(Debug, Default)]
struct Records {
    /// Whole ones that rustls has not looked at.
    whole: usize,
    /// What has come of the next one's head.
    head: [u8; 5],
    head_len: usize,
    /// What has yet to come of the one whose head was complete.
    left: usize,
}

impl Records {
    fn count(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if 0 < self.left {
                let step = self.left.min(bytes.len());
                self.left -= step;
                self.whole += usize::from(self.left == 0);
                bytes = bytes.get(step..).unwrap_or_default();
                continue;
            }
            if let Some(byte) = self.head.get_mut(self.head_len) {
                *byte = *first;
            }
            self.head_len += 1;
            if self.head.len() <= self.head_len {
                let [.., high, low] = self.head;
                let length = usize::from(u16::from_be_bytes([high, low]));
                (self.head_len, self.left) = (0, length);
                // Whatever rustls has to say of one that is too long or empty, it says it at once.
                self.whole += usize::from(length == 0 || RECORD_BYTES + RECORD_MORE_BYTES < length);
            }
            bytes = rest;
        }
    }
}

/// A connection, and the records that have come over it.
struct Counted {
    inner: TransportAdapter,
    records: Records,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.records.count(into.get(..count).unwrap_or_default());
        Ok(count)
    }
}

impl Write for Counted {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.inner.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// No TLS record is longer by much.
const RECORD_BYTES: usize = 16 << 10;
/// By this much (RFC 8446, 5.2, and RFC 5246, 6.2.3).
const RECORD_MORE_BYTES: usize = 2 << 10;

/// The head of an answer must fit into this; API servers send some hundred bytes. So must one line of a request's head, of
/// which a token is the longest.
pub(crate) const CLEAR_TEXT_BYTES: usize = 8 << 10;

/// What is inside the TLS of one connection. Hundreds of watches wait for minutes until something comes: what they do not
/// use meanwhile they do not hold, which ureq's own buffers do.
#[derive(Default)]
struct ClearText {
    input: Vec<u8>,
    /// Of the input, what is there and not used yet.
    filled: std::ops::Range<usize>,
    output: Vec<u8>,
    /// How much of the output was written and not sent yet.
    written: usize,
    /// Whether the last that was asked of the input used any of it: if not, it needs more before it can be used.
    progress: bool,
    /// Whether memory that is not used is kept for what comes next.
    keeps: bool,
}

impl ClearText {
    fn forget_what_was_consumed(&mut self) {
        if self.filled.is_empty() {
            self.filled = 0..0;
            if !self.keeps || CLEAR_TEXT_BYTES < self.input.len() {
                self.input = Vec::new();
            }
        }
    }

    fn forget_what_was_sent(&mut self) {
        if self.keeps {
            // Head and body; bodies of more pieces have made it larger.
            self.output.truncate(2 * CLEAR_TEXT_BYTES);
            self.output.shrink_to(2 * CLEAR_TEXT_BYTES);
        } else {
            self.output = Vec::new();
        }
    }

    /// Behind what was written.
    fn make_room_for_output(&mut self) {
        let bytes = self.written + CLEAR_TEXT_BYTES;
        if self.output.len() < bytes {
            self.output.resize(bytes, 0);
        }
    }

    /// Moves what is there to the front and makes room after it.
    fn make_room(&mut self, bytes: usize) {
        if 0 < self.filled.start {
            self.input.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        if self.input.len() < bytes {
            self.input.resize(bytes, 0);
        }
    }
}

impl Buffers for ClearText {
    fn output(&mut self) -> &mut [u8] {
        self.make_room_for_output();
        &mut self.output[self.written..]
    }

    fn input(&self) -> &[u8] {
        &self.input[self.filled.clone()]
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        self.make_room(CLEAR_TEXT_BYTES);
        &mut self.input[self.filled.end..]
    }

    fn input_appended(&mut self, amount: usize) {
        self.filled.end = self.input.len().min(self.filled.end + amount);
    }

    fn input_consume(&mut self, amount: usize) {
        self.progress = amount > 0;
        self.filled.start = self.filled.end.min(self.filled.start + amount);
    }

    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        self.make_room_for_output();
        self.make_room(self.filled.len() + CLEAR_TEXT_BYTES);
        (&mut self.input[self.filled.end..], &mut self.output[self.written..])
    }

    fn can_use_input(&self) -> bool {
        // There is no answer to what was not sent.
        self.written == 0 && self.progress && !self.filled.is_empty()
    }
}

/// `insecure-skip-tls-verify`: whoever answers is believed to be the server. A signature check would add nothing,
/// since whoever sits in between has a key of his own.
#[derive(Debug)]
struct TrustAnyone(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAnyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The error of the TLS library inside, if it is one.
fn tls_error(error: &ureq::Error) -> Option<&rustls::Error> {
    match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()),
        _ => None,
    }
}

/// Whether one side did not believe the other's certificate: the server's is of an authority that is not trusted (or
/// not yet, while it rotates), or ours was refused. In neither case has the server looked at the request.
pub(crate) fn is_distrust(error: &ureq::Error) -> bool {
    use rustls::AlertDescription as Alert;
    match tls_error(error) {
        Some(rustls::Error::InvalidCertificate(_)) => true,
        Some(rustls::Error::AlertReceived(alert)) => matches!(
            alert,
            Alert::BadCertificate
                | Alert::CertificateExpired
                | Alert::CertificateRequired
                | Alert::CertificateRevoked
                | Alert::CertificateUnknown
                | Alert::UnknownCA
        ),
        _ => false,
    }
}

/// The cause of a failed exchange in words, with the mend where the cause is known to be the configuration.
pub(crate) fn explain(error: &ureq::Error) -> String {
    if let Some(tls) = tls_error(error) {
        return explain_tls(tls);
    }
    match error {
        ureq::Error::Io(error) => explain_io(error),
        ureq::Error::Timeout(phase) => format!("timed out ({phase})"),
        ureq::Error::Protocol(error) => {
            format!(
                "what answers does not speak HTTP/1.1 ({error}); check the scheme and the port of the server"
            )
        }
        ureq::Error::HostNotFound => "the server's host name does not resolve".to_owned(),
        // The others say what happened and hold nothing of the request's headers.
        other => other.to_string(),
    }
}

fn explain_io(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::UnexpectedEof => {
            "the server closed the connection before the answer was complete".to_owned()
        }
        _ => error.to_string(),
    }
}

fn explain_tls(error: &rustls::Error) -> String {
    use rustls::{AlertDescription, CertificateError};
    let mend = match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "; the server's certificate is signed by an authority that certificate-authority does not name"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "; the server's URL uses another name than its certificate: set tls-server-name to one of those",
        rustls::Error::InvalidMessage(_) => "; is this a plain HTTP port?",
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::BadCertificate,
        ) => "; the server wants another client certificate",
        _ => "",
    };
    format!("TLS: {error}{mend}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As ureq uses them: bytes come in pieces, and are used in others.
    #[test]
    fn clear_text_comes_out_as_it_went_in() {
        let mut buffers = ClearText::default();
        let sent: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        let (mut came, mut used) = (0, Vec::new());
        let mut piece = 1;
        while used.len() < sent.len() {
            piece = piece * 7 % 10_007;
            let room = buffers.input_append_buf();
            let amount = room.len().min(piece).min(sent.len() - came);
            room[..amount].copy_from_slice(&sent[came..came + amount]);
            buffers.input_appended(amount);
            came += amount;
            let amount = buffers.input().len().min(piece / 2 + 1);
            used.extend_from_slice(&buffers.input()[..amount]);
            buffers.input_consume(amount);
            assert!(buffers.input.len() <= CLEAR_TEXT_BYTES, "it does not grow");
        }
        assert!(used == sent);
    }

    #[test]
    fn records_are_counted_however_they_are_cut() {
        let record =
            |length: usize| [&[23, 3, 3, (length >> 8) as u8, length as u8][..], &vec![7; length]].concat();
        let lengths = [1, 300, RECORD_BYTES + 256, 17];
        let stream = lengths.map(record).concat();
        for step in [1, 2, 4, 5, 6, 999, 4_096, stream.len()] {
            let mut records = Records::default();
            let mut counted = Vec::new();
            for (number, piece) in stream.chunks(step).enumerate() {
                let before = records.whole;
                records.count(piece);
                counted.extend((before..records.whole).map(|_| number * step + piece.len()));
            }
            let ends = lengths.iter().scan(0, |end, length| {
                *end += 5 + length;
                Some(*end)
            });
            let expected: Vec<usize> =
                ends.map(|end| (end.div_ceil(step) * step).min(stream.len())).collect();
            assert_eq!(counted, expected, "in pieces of {step}");
        }
    }

    #[test]
    fn what_is_no_record_is_looked_at_at_once() {
        let mut records = Records::default();
        records.count(b"HTTP/");
        assert_eq!(records.whole, 1, "its length would be 20,527");
        let mut records = Records::default();
        records.count(&[23, 3, 3, 0, 0]);
        assert_eq!(records.whole, 1, "an empty one");
    }

    #[test]
    fn clear_text_that_was_used_is_not_kept() {
        let mut buffers = ClearText::default();
        buffers.input_append_buf()[..3].copy_from_slice(b"abc");
        buffers.input_appended(3);
        buffers.input_consume(2);
        buffers.forget_what_was_consumed();
        assert_eq!((buffers.input(), buffers.can_use_input()), (&b"c"[..], true));
        buffers.input_consume(0);
        assert!(!buffers.can_use_input(), "what was looked at in vain needs more to come");
        buffers.input_consume(1);
        buffers.forget_what_was_consumed();
        assert_eq!(buffers.input.capacity(), 0);
    }

    #[test]
    fn a_connection_that_keeps_its_buffers_keeps_no_more_than_one_request_needs() {
        let mut buffers = ClearText { keeps: true, ..ClearText::default() };
        for _ in 0..3 {
            buffers.output()[..1].copy_from_slice(b"x");
            buffers.written += CLEAR_TEXT_BYTES;
        }
        buffers.make_room(3 * CLEAR_TEXT_BYTES);
        buffers.written = 0;
        buffers.forget_what_was_sent();
        buffers.forget_what_was_consumed();
        assert_eq!((buffers.output.capacity(), buffers.input.capacity()), (2 * CLEAR_TEXT_BYTES, 0));
        buffers.make_room(CLEAR_TEXT_BYTES);
        buffers.forget_what_was_consumed();
        assert_eq!(buffers.input.len(), CLEAR_TEXT_BYTES);
    }

    #[test]
    fn a_body_is_sent_while_an_answer_waits() {
        let mut buffers = ClearText::default();
        buffers.input_append_buf()[..3].copy_from_slice(b"abc");
        buffers.input_appended(3);
        let (piece, output) = buffers.tmp_and_output();
        assert!(CLEAR_TEXT_BYTES <= piece.len() && output.len() == CLEAR_TEXT_BYTES);
        assert_eq!(buffers.input(), b"abc");
    }
}
