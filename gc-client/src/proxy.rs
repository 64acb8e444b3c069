//! The proxy that the environment names, by Go's rules (`net/http.ProxyFromEnvironment`), which client-go follows.

use std::net::IpAddr;

use ureq::http::Uri;

use crate::config::{Environment, Place};
use crate::secret::Secret;

/// `HTTPS_PROXY` or `HTTP_PROXY` by the server's scheme, in either case of letters; none for a loopback address or
/// one that `NO_PROXY` lists.
pub(crate) fn from_environment(environment: &Environment<'_>, server: &Uri) -> Option<(Secret, Place)> {
    let names = match server.scheme_str() {
        Some("https") => ["HTTPS_PROXY", "https_proxy"],
        _ => ["HTTP_PROXY", "http_proxy"],
    };
    let (name, url) = names.into_iter().find_map(|name| environment.get(name).map(|url| (name, url)))?;
    let exempt = environment.get("NO_PROXY").or_else(|| environment.get("no_proxy")).unwrap_or_default();
    let host = bare(server.host().unwrap_or_default());
    let default_port = if server.scheme_str() == Some("https") { 443 } else { 80 };
    let port = server.port_u16().unwrap_or(default_port);
    if is_loopback(host) || exempt.split(',').any(|entry| matches(entry.trim(), host, port)) {
        return None;
    }
    Some((Secret::new(url), Place::new("the environment", format!("${name}"))))
}

pub(crate) fn is_loopback(host: &str) -> bool {
    let host = bare(host);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host)
}

/// One entry of `NO_PROXY`: `*`, an address, a block (`10.0.0.0/8`), a domain with all below it (`example.com`), or
/// only what is below it (`.example.com`, `*.example.com`); each but a block may end in `:port`.
fn matches(entry: &str, host: &str, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    let address = host.parse::<IpAddr>().ok();
    if let Some((network, bits)) = entry.split_once('/') {
        return in_block(address, network, bits);
    }
    let (name, wanted_port) = split_port(entry);
    if name.is_empty() || wanted_port.is_some_and(|wanted| wanted != port) {
        return false;
    }
    if let Ok(wanted) = bare(name).parse::<IpAddr>() {
        return address == Some(wanted);
    }
    let (name, host) = (name.to_ascii_lowercase(), host.to_ascii_lowercase());
    let domain = name.strip_prefix('*').unwrap_or(&name);
    match domain.strip_prefix('.') {
        Some(_) => host.ends_with(domain),
        None => host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
    }
}

fn split_port(entry: &str) -> (&str, Option<u16>) {
    if entry.parse::<IpAddr>().is_ok() {
        return (entry, None);
    }
    match entry.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?))) {
        Some((name, port)) => (name, Some(port)),
        None => (entry, None),
    }
}

fn in_block(address: Option<IpAddr>, network: &str, bits: &str) -> bool {
    let (Some(address), Ok(network), Ok(bits)) = (address, network.parse::<IpAddr>(), bits.parse::<u32>())
    else {
        return false;
    };
    let (address, network, width) = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => (u128::from(a.to_bits()), u128::from(n.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(n)) => (a.to_bits(), n.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    bits <= width && (address ^ network).checked_shr(width - bits).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_no_proxy_follows_gos_rules() {
        let cases = [
            ("*", "a.b", true),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("0.0.0.0/0", "11.1.2.3", true),
            ("10.0.0.0/33", "10.1.2.3", false),
            ("fd00::/8", "fd12::1", true),
            ("::/0", "fd12::1", true),
            ("10.0.0.0/8", "ten.example", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("[fd12::1]:6443", "fd12::1", true),
            ("fd12::1", "fd12::1", true),
            ("example.com", "example.com", true),
            ("example.com", "api.EXAMPLE.com", true),
            ("example.com", "badexample.com", false),
            (".example.com", "example.com", false),
            ("*.example.com", "api.example.com", true),
            ("example.com:6443", "example.com", true),
            ("example.com:443", "example.com", false),
            ("", "example.com", false),
        ];
        for (entry, host, expected) in cases {
            assert_eq!(matches(entry, host, 6443), expected, "{entry} {host}");
        }
    }

    #[test]
    fn r1_the_environments_proxy_is_chosen_by_scheme_and_never_for_loopback() {
        let proxy_for = |url: &str| {
            let get = |name: &str| match name {
                "HTTPS_PROXY" => Some("http://secure:1".to_owned()),
                "http_proxy" => Some("http://plain:2".to_owned()),
                "NO_PROXY" => Some("10.0.0.0/8, internal".to_owned()),
                _ => None,
            };
            let environment = Environment { get: &get, service_account: "/none".into() };
            from_environment(&environment, &url.parse().unwrap()).map(|(url, _)| url.reveal_str().to_owned())
        };
        assert_eq!(proxy_for("https://api.example.com"), Some("http://secure:1".into()));
        assert_eq!(proxy_for("http://api.example.com"), Some("http://plain:2".into()));
        assert_eq!(proxy_for("https://10.0.0.1:443"), None);
        assert_eq!(proxy_for("https://api.internal"), None);
        assert_eq!(proxy_for("https://127.0.0.1:6443"), None);
        assert_eq!(proxy_for("https://[::1]:6443"), None);
        assert_eq!(proxy_for("https://localhost:6443"), None);
    }
}
