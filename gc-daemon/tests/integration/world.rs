//! A simulated API server with a daemon beside it.

use std::sync::atomic::{AtomicU32, Ordering};

use expect_test::Expect;
use gc_tests::http::Front;
use gc_tests::sim::{ApiServer, FaultRule, LogEntry, Method, Request, Timestamp};
use serde_json::{Value, json};

use crate::process::{DEADLINE, Daemon, eventually};

/// Who the daemon is in the server's log.
pub const DAEMON: &str = "gc-daemon/";

/// The server and the daemon. The daemon ends first.
pub struct World {
    pub daemon: Daemon,
    pub front: Front,
    flags: Vec<String>,
    fences: AtomicU32,
}

impl World {
    /// A server with the objects of a text, and a daemon that collects already.
    pub fn new(text: &str) -> World {
        World::with(text, &[], |_| {})
    }

    /// The same with flags for the daemon, and with a server that is told something before the daemon starts.
    pub fn with(text: &str, flags: &[&str], tell: impl FnOnce(&mut ApiServer)) -> World {
        let mut world = World::starting(text, flags, tell);
        world.daemon.wait_until_ready();
        world
    }

    /// The same without waiting for the daemon.
    pub fn starting(text: &str, flags: &[&str], tell: impl FnOnce(&mut ApiServer)) -> World {
        let mut server = ApiServer::new(7);
        // Before the rules for faults, so that they hit nobody else.
        server.load(Timestamp::now(), text).unwrap();
        tell(&mut server);
        let front = Front::start(server).unwrap();
        let daemon = Daemon::start(&front.url(), flags);
        World {
            daemon,
            front,
            flags: flags.iter().map(ToString::to_string).collect(),
            fences: AtomicU32::new(0),
        }
    }

    /// A new process in the place of the old one, which has ended or is killed.
    pub fn restart(&mut self) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        self.daemon = Daemon::start(&self.front.url(), &flags);
        self.daemon.wait_until_ready();
    }

    /// Looks at the server or changes it.
    pub fn server<R>(&self, act: impl FnOnce(&mut ApiServer) -> R) -> R {
        self.front.with(act)
    }

    /// Creates objects.
    pub fn load(&self, text: &str) {
        self.server(|server| server.load(Timestamp::now(), text)).unwrap();
    }

    /// Deletes `KIND/NAME @NAMESPACE` as a person would.
    pub fn delete(&self, object: &str, policy: &str) {
        self.server(|server| delete(server, object, policy));
    }

    /// Merges this into the object.
    pub fn patch(&self, object: &str, body: &Value) {
        self.server(|server| patch(server, object, body));
    }

    /// Takes an object's finalizers of other controllers.
    pub fn release(&self, object: &str) {
        self.patch(object, &json!({"metadata": {"finalizers": null}}));
    }

    /// Waits until the world looks like this; events are left out.
    pub fn becomes(&self, expected: &Expect) {
        let wanted: String = expected.data().lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        let start = std::time::Instant::now();
        let mut shown = self.show();
        while shown.replace('\n', "") != wanted && start.elapsed() < DEADLINE {
            std::thread::sleep(std::time::Duration::from_millis(10));
            shown = self.show();
        }
        expected.assert_eq(&shown);
    }

    /// All objects but events.
    pub fn show(&self) -> String {
        let all = self.server(|server| server.show());
        all.lines().filter(|line| !line.starts_with("ev/")).map(|line| format!("{line}\n")).collect()
    }

    /// The events, one a line.
    pub fn events(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let line = |event: &Value| {
            let on = &event["involvedObject"];
            let (kind, name) = (text(&on["kind"]), text(&on["name"]));
            format!("{} {} on {kind} {name}", text(&event["type"]), text(&event["reason"]))
        };
        self.server(|server| server.objects("events").iter().map(|event| line(event)).collect())
    }

    /// Waits for something else.
    pub fn until(&self, what: &str, holds: impl Fn(&World) -> bool) {
        eventually(what, DEADLINE, || holds(self).then_some(()));
    }

    /// A dependent of nobody comes and is collected: what came before it has been seen by then. Another cluster-wide
    /// order than that of one watch there is not, so pass the kind that matters.
    pub fn fence(&self, kind: &str) {
        let number = self.fences.fetch_add(1, Ordering::Relaxed);
        let object = format!("{kind}/fence-{number} @fence");
        self.load(&format!("{object} owners=[{kind}/nobody#nobody-{number}]"));
        self.until("the fence has gone", |world| {
            world.server(|server| server.handle(Timestamp::now(), &Request::get(&path(&object))).code) == 404
        });
        self.settle();
    }

    /// Waits until no work is in hand or ready. What was put off for later does not count.
    pub fn settle(&self) {
        let queues = ["attempt_to_delete", "attempt_to_orphan", "graph_changes"];
        let is_idle = || {
            queues.iter().all(|queue| {
                let metric = |what: &str| {
                    let name = format!("workqueue_{what}{{name=\"garbage_collector_{queue}\"}}");
                    self.daemon.metric(&name).unwrap_or(0.0)
                };
                metric("depth") == 0.0 && metric("unfinished_work_seconds") == 0.0
            })
        };
        eventually("the daemon is idle", DEADLINE, || is_idle().then_some(()));
    }

    /// What the daemon has asked, in the order of the answers.
    pub fn requests(&self) -> Vec<LogEntry> {
        let is_ours = |entry: &&LogEntry| entry.user_agent.starts_with(DAEMON);
        self.server(|server| server.requests().filter(is_ours).cloned().collect())
    }

    /// How often it has asked with this method for this path, whatever the query.
    pub fn count(&self, method: Method, path: &str) -> usize {
        let fits = |entry: &&LogEntry| entry.method == method && path_of(entry) == path;
        self.requests().iter().filter(fits).count()
    }

    /// What it has written, one object a word.
    pub fn written(&self) -> Vec<String> {
        self.server(|server| {
            let ours = server.writes().filter(|write| write.user_agent.starts_with(DAEMON));
            ours.map(|write| format!("{}/{}", write.resource, write.key)).collect()
        })
    }

    /// From now on, this happens.
    pub fn fault(&self, rule: FaultRule) {
        self.server(|server| server.faults.push(for_daemon(rule)));
    }

    /// From now on, nothing of the kind happens.
    pub fn no_more_faults(&self) {
        self.server(|server| server.faults.clear());
    }
}

/// The rule, for the daemon's requests only.
pub fn for_daemon(rule: FaultRule) -> FaultRule {
    FaultRule { user_agent: DAEMON.into(), ..rule }
}

/// The path without the query.
pub fn path_of(entry: &LogEntry) -> &str {
    entry.target.split('?').next().unwrap_or_default()
}

/// Deletes, for those who hold the server already.
pub fn delete(server: &mut ApiServer, object: &str, policy: &str) {
    let request = Request::delete(&format!("{}?propagationPolicy={policy}", path(object)));
    write(server, &request);
}

/// Patches, for those who hold the server already.
pub fn patch(server: &mut ApiServer, object: &str, body: &Value) {
    write(server, &Request::merge_patch(&path(object), body));
}

/// Carries a write out that must succeed.
pub fn write(server: &mut ApiServer, request: &Request) {
    let response = server.handle(Timestamp::now(), request);
    assert!((200..300).contains(&response.code), "{}: {}", request.target, response.value());
}

/// The UID of an object.
pub fn uid(server: &mut ApiServer, object: &str) -> String {
    let read = server.handle(Timestamp::now(), &Request::get(&path(object))).value();
    read["metadata"]["uid"].as_str().unwrap_or_else(|| panic!("{object}: {read}")).to_owned()
}

/// A reference that blocks its owner.
pub fn blocking_reference(server: &mut ApiServer, owner: &str) -> Value {
    let read = server.handle(Timestamp::now(), &Request::get(&path(owner))).value();
    let metadata = &read["metadata"];
    json!({
        "apiVersion": read["apiVersion"], "kind": read["kind"], "name": metadata["name"], "uid": metadata["uid"],
        "blockOwnerDeletion": true,
    })
}

/// Where an object is served, from `KIND/NAME @NAMESPACE`.
pub fn path(object: &str) -> String {
    let (object, namespace) = object.split_once(" @").unwrap_or((object, ""));
    let (kind, name) = object.split_once('/').expect("KIND/NAME");
    let (prefix, plural) = match kind {
        "cm" => ("/api/v1", "configmaps"),
        "secret" => ("/api/v1", "secrets"),
        "po" => ("/api/v1", "pods"),
        "deploy" => ("/apis/apps/v1", "deployments"),
        "rs" => ("/apis/apps/v1", "replicasets"),
        "clusterrole" => ("/apis/rbac.authorization.k8s.io/v1", "clusterroles"),
        "crd" => ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
        "thing" => ("/apis/example.com/v1", "things"),
        _ => panic!("{kind}: not among the kinds of these tests"),
    };
    match namespace {
        "" => format!("{prefix}/{plural}/{name}"),
        _ => format!("{prefix}/namespaces/{namespace}/{plural}/{name}"),
    }
}

/// Creates the definition of the kind Thing.
pub fn define_things(server: &mut ApiServer) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    write(server, &Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition));
    server.settle(Timestamp::now());
}
