//! What the daemon itself reads from outside: its command line, the file of `--ttl-config`, and the heads of HTTP
//! requests. `cargo test` tries a few hundred cases of each; `cargo xtask fuzz` runs the same test for longer.

use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::Instant;

use gc_tests::fuzz::{self, Memory, Plan, Target, ensure, ensure_one_line, outline};

use crate::flags::Flags;
use crate::health::Health;
use crate::metrics::{GraphNumbers, Metrics, Sources};
use crate::serve::{Pages, answer};

const FLAGS: Target = Target {
    name: "flags",
    promise: "a command line is understood, or said not to be in one line with code 2",
    corpus: || {
        let lines = [
            "--kubeconfig\0/etc/kubeconfig\0--context\0dev\0-v\x002",
            "--concurrent-gc-syncs=20\0--gc-ignored-resources=deployments.apps,pods\0--log-format=json",
            "--kube-api-qps\x0020.5\0--kube-api-burst\x0030\0--leader-elect=false\0--metrics-bind-address\x00127.0.0.1:0",
            "--leader-elect\0--help\0--version\0--metrics-bind-address=[::1]:10262",
        ];
        lines.map(|line| line.as_bytes().to_vec()).to_vec()
    },
    words: &[
        b"\0",
        b"--",
        b"\0--",
        b"=",
        b"-v",
        b"--v=",
        b"--help",
        b",",
        b"\n",
        b"-1",
        b"NaN",
        b"inf",
        b"1e39",
        b"localhost:",
        b":",
        b"[::]",
        b"0",
        b"true",
        b"-",
        b"\xff",
        b"\x1b[31m",
        b"--kube",
        b"--no-such-flag",
        b"--kubeconfig=",
        b"--gc-ignored-resources=",
        b"--context=",
        b"--verbosity",
    ],
    memory: Memory { fixed_bytes: 4 << 20, per_input_byte: 400 },
    check: |input| {
        let arguments = input.split(|b| *b == 0).map(|word| std::ffi::OsString::from_vec(word.to_vec()));
        match Flags::from_args(std::iter::once("gc-daemon".into()).chain(arguments)) {
            Ok(flags) => Ok(format!("understood: {}", outline(&format!("{flags:?}")))),
            Err(exit) if exit.code == 0 => Ok("help".into()),
            Err(exit) => {
                ensure(exit.code == 2, || format!("code {}", exit.code))?;
                ensure_one_line(&exit.text)?;
                ensure(exit.text.starts_with("gc-daemon: "), || exit.text.clone())?;
                ensure(exit.text.len() <= 4 << 10, || format!("a line of {} bytes", exit.text.len()))?;
                Ok(outline(&exit.text))
            }
        }
    },
};

const TTL_CONFIG: Target = Target {
    name: "ttl-config",
    promise: "a file of profiles is understood, or what is wrong is said in one line",
    corpus: || {
        let examples = include_str!("../../docs/ttl.md").split("```yaml\n").skip(1);
        examples.filter_map(|rest| rest.split("```").next()).map(|text| text.as_bytes().to_vec()).collect()
    },
    words: &[
        b"profiles:\n",
        b"- ",
        b"  ",
        b": ",
        b"ttl",
        b"seconds: ",
        b"finished: {",
        b"conditions: a.b",
        b"phase: a.b",
        b"min: -1",
        b"9223372036854775807",
        b"{success: 1}",
        b"null",
        b"&a ",
        b"*a",
        b"\"",
        b"[",
        b"]",
        b"\n",
        b"!!binary ",
    ],
    memory: Memory { fixed_bytes: 4 << 20, per_input_byte: 4_000 },
    check: |input| {
        let Ok(text) = std::str::from_utf8(input) else { return Ok("no text".into()) };
        match crate::ttl::config::parse(text) {
            Ok(profiles) => Ok(format!("{} profiles", profiles.len())),
            Err(what) => {
                ensure_one_line(&what)?;
                Ok(outline(&what))
            }
        }
    },
};

const HTTP_HEAD: Target = Target {
    name: "http-head",
    promise: "whatever a client sends, it gets one answer of a known code, of the length that its head says",
    corpus: || {
        let heads = [
            "GET /readyz?verbose HTTP/1.1\r\nHost: x\r\n\r\n",
            "HEAD /debug/controllers/garbage-collector-controller/graph?uid=a%20b&uid=c+d HTTP/1.0\r\n\r\n",
            "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\nHost: x\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        ];
        heads.map(|head| head.as_bytes().to_vec()).to_vec()
    },
    words: &[
        b"\r\n",
        b"\r\n\r\n",
        b"\n\n",
        b" ",
        b"GET ",
        b"HEAD ",
        b" HTTP/1.1",
        b"%",
        b"%ff",
        b"%00",
        b"&uid=",
        b"?",
        b"&",
        b"=",
        b"/metrics",
        b"/healthz",
        b"/livez",
        b"/",
        b"Accept: a\r\n",
        b": ",
        b"\t",
        b"\0",
        b"http://x/healthz",
        b"*",
    ],
    memory: Memory { fixed_bytes: 1 << 20, per_input_byte: 200 },
    check: |head| {
        let sources = Sources { queues: Box::new(Vec::new), graph: Box::new(GraphNumbers::default) };
        let pages = Pages {
            health: Arc::new(Health::new(Instant::now())),
            metrics: Arc::new(Metrics::new(sources)),
            graph_dot: Arc::new(|uids| format!("{uids:?}")),
        };
        let answered = answer(head, &pages).to_bytes();
        let text = String::from_utf8(answered).map_err(|_| "an answer that is no UTF-8")?;
        let (head_of_answer, body) = text.split_once("\r\n\r\n").ok_or("an answer without a head")?;
        let length = head_of_answer.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length = length.and_then(|length| length.parse::<usize>().ok());
        ensure(body.is_empty() || length == Some(body.len()), || format!("{text:?}"))?;
        let line = head_of_answer.lines().next().unwrap_or_default();
        let code = line.split(' ').nth(1).unwrap_or_default();
        ensure(["200", "400", "404", "405", "431", "503"].contains(&code), || line.to_owned())?;
        Ok(format!("{code} {}", outline(body)))
    },
};

#[test]
fn r7_no_command_line_no_file_and_no_request_does_harm() {
    fuzz::check(&[FLAGS, TTL_CONFIG, HTTP_HEAD], &Plan { cases: 400, ..Plan::default() }, &|work| {
        work();
        0
    });
}
