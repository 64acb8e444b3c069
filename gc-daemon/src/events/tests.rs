use super::*;
use crate::metrics::{GraphNumbers, Sources};
use expect_test::expect;
use gc_client::Status;
use gc_graph::OwnerReference;
use std::cell::RefCell;

/// Longer than any of these tests takes on a busy machine; reached only when one fails.
const PATIENCE: Duration = Duration::from_secs(30);

fn metrics() -> Arc<Metrics> {
    Arc::new(Metrics::new(Sources { queues: Box::new(Vec::new), graph: Box::new(GraphNumbers::default) }))
}

fn dropped(metrics: &Metrics) -> u64 {
    let page = metrics.prometheus_text().unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix("gc_events_dropped_total ")).unwrap();
    line.parse().unwrap()
}

fn object(namespace: &str, name: &str, uid: &str) -> Coordinate {
    Coordinate {
        kind: "ConfigMap".into(),
        api_version: "v1".into(),
        namespace: namespace.into(),
        name: name.into(),
        uid: Uid::new(uid),
    }
}

fn note(uid: &str, message: &str) -> Note {
    Note { component: COMPONENT, object: object("ns", "x", uid), reason: "Test", message: message.into() }
}

fn invalid(namespace: &str, uid: &str) -> InvalidOwnerReference {
    InvalidOwnerReference {
        dependent: object(namespace, "dependent", uid),
        reference: OwnerReference {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: "owner".into(),
            uid: Uid::new("u"),
            controller: false,
            block_owner_deletion: false,
        },
        owner_namespace: "elsewhere".into(),
    }
}

fn refused(code: u16) -> Error {
    Error::Status(Box::new(Status { code, ..Status::default() }))
}

#[test]
fn g4_the_event_on_a_dependent_in_the_references_words() {
    let (posts, posted) = bounded(10);
    let post = move |namespace: &str, event: &Value| {
        posts
            .send((namespace.to_owned(), event["message"].clone(), event["involvedObject"].clone()))
            .unwrap();
        Ok(())
    };
    let recorder = Recorder::start_with(&metrics(), post).unwrap();
    recorder.invalid_owner_reference(&invalid("ns", "d1"));
    // The repeat is left out, so what comes next is the event on the other object.
    recorder.invalid_owner_reference(&invalid("ns", "d1"));
    recorder.invalid_owner_reference(&invalid("", "d2"));
    let mut actual = String::new();
    for _ in 0..2 {
        let (namespace, message, object) = posted.recv_timeout(PATIENCE).unwrap();
        actual += &format!("{namespace}: {message}\n    {object}\n");
    }
    expect![[r#"
        ns: "ownerRef [apps/v1/Deployment, namespace: ns, name: owner, uid: u] does not exist in namespace \"ns\""
            {"apiVersion":"v1","kind":"ConfigMap","name":"dependent","namespace":"ns","uid":"d1"}
        default: "ownerRef [apps/v1/Deployment, namespace: , name: owner, uid: u] does not exist in namespace \"\""
            {"apiVersion":"v1","kind":"ConfigMap","name":"dependent","uid":"d2"}
    "#]].assert_eq(&actual);
}

#[test]
fn g4_the_event_as_it_is_posted() {
    let now: Timestamp = "2026-11-30T03:15:00.987654321Z".parse().unwrap();
    let event = event(&note("u", "words"), now, &mut 0);
    expect![[r#"
        {
          "apiVersion": "v1",
          "count": 1,
          "firstTimestamp": "2026-11-30T03:15:00Z",
          "involvedObject": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "x",
            "namespace": "ns",
            "uid": "u"
          },
          "kind": "Event",
          "lastTimestamp": "2026-11-30T03:15:00Z",
          "message": "words",
          "metadata": {
            "name": "x.18ecb4374af370b1",
            "namespace": "ns"
          },
          "reason": "Test",
          "reportingComponent": "garbage-collector-controller",
          "reportingInstance": "",
          "source": {
            "component": "garbage-collector-controller"
          },
          "type": "Warning"
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&event).unwrap());
}

#[test]
fn kubernetes_127594_the_name_of_an_event_is_valid_whatever_the_objects_name() {
    let mut actual = String::new();
    for name in ["pod-1", "system:node-proxier", "Upper", "a..b", "-a", ""] {
        actual += &format!("{name:?} {}\n", event_name(COMPONENT, name, 0x18_ABCD));
    }
    let longest = "a".repeat(253);
    actual += &format!("253 characters {}\n", event_name(COMPONENT, &longest, 1));
    expect![[r#"
        "pod-1" pod-1.18abcd
        "system:node-proxier" garbage-collector-controller.18abcd
        "Upper" garbage-collector-controller.18abcd
        "a..b" garbage-collector-controller.18abcd
        "-a" garbage-collector-controller.18abcd
        "" garbage-collector-controller.18abcd
        253 characters garbage-collector-controller.1
    "#]]
    .assert_eq(&actual);
}

#[test]
fn events_made_in_the_same_moment_have_different_names() {
    let mut last_ns = 0;
    let mut name = || event(&note("u", ""), Timestamp::UNIX_EPOCH, &mut last_ns)["metadata"]["name"].clone();
    assert_ne!(name(), name());
}

#[test]
fn a_message_of_any_length_is_shortened_at_a_character() {
    assert_eq!(shortened("short"), "short");
    assert_eq!(shortened(&"x".repeat(1_024)).len(), 1_024);
    let long = shortened(&"é".repeat(5_000));
    assert!(long.len() <= 1_024 && long.ends_with("é…"), "{long}");
}

#[test]
fn the_same_event_is_posted_once_in_ten_minutes() {
    let mut recent = Recent::default();
    let start = Instant::now();
    let mut admit = |s, uid, message| recent.admit(&note(uid, message), start + Duration::from_secs(s));
    assert_eq!(admit(0, "a", "1"), Admission::Post);
    assert_eq!(admit(1, "a", "1"), Admission::Repeat);
    assert_eq!(admit(1, "a", "2"), Admission::Post);
    assert_eq!(admit(1, "b", "1"), Admission::Post);
    assert_eq!(admit(599, "a", "1"), Admission::Repeat);
    assert_eq!(admit(600, "a", "1"), Admission::Post);
    assert_eq!(admit(600, "a", "1"), Admission::Repeat);
}

#[test]
fn one_object_gets_25_different_events_in_ten_minutes() {
    let mut recent = Recent::default();
    let now = Instant::now();
    let admissions = (0..30).map(|n| recent.admit(&note("a", &n.to_string()), now));
    let posted = admissions.filter(|admission| *admission == Admission::Post).count();
    assert_eq!(posted, PER_OBJECT_MAX);
    assert_eq!(recent.admit(&note("b", "1"), now), Admission::Post);
    assert_eq!(recent.admit(&note("a", "new"), now + WINDOW), Admission::Post);
}

#[test]
fn a_flood_of_objects_is_bounded_and_passes() {
    let mut recent = Recent::default();
    let start = Instant::now();
    let later = start + WINDOW / 2;
    for n in 0..OBJECTS_MAX {
        let now = if n == 0 { start } else { later };
        assert_eq!(recent.admit(&note(&n.to_string(), "1"), now), Admission::Post);
    }
    assert_eq!(recent.admit(&note("one more", "1"), later), Admission::TooMany);
    assert_eq!(recent.admit(&note("1", "1"), later), Admission::Repeat);
    // The first object's window is over, which makes room for one.
    assert_eq!(recent.admit(&note("one more", "1"), start + WINDOW), Admission::Post);
    assert_eq!(recent.admit(&note("two more", "1"), start + WINDOW), Admission::TooMany);
    assert_eq!(recent.objects.len(), OBJECTS_MAX);
}

#[test]
fn errors_that_may_pass_are_retried_twice_and_others_not_at_all() {
    let transport = Error::Transport { request: String::new(), cause: "refused".into() };
    let mut actual = String::new();
    for (what, error) in [
        ("no answer", transport.clone()),
        ("401", refused(401)),
        ("429", refused(429)),
        ("500", refused(500)),
        ("403", refused(403)),
        ("404", refused(404)),
        ("409", refused(409)),
        ("shut down", Error::ShutDown),
    ] {
        let waited = RefCell::new(Vec::new());
        let wait = |delay: Duration| {
            waited.borrow_mut().push(delay.as_secs());
            false
        };
        assert_eq!(with_retries(|| Err(error.clone()), wait), Err(error));
        actual += &format!("{what}: waited {:?}\n", waited.borrow());
    }
    expect![[r#"
        no answer: waited [2, 10]
        401: waited [2, 10]
        429: waited [2, 10]
        500: waited [2, 10]
        403: waited []
        404: waited []
        409: waited []
        shut down: waited []
    "#]]
    .assert_eq(&actual);

    // Stopped while it waits: no further try.
    let tries = RefCell::new(0);
    let post = || {
        *tries.borrow_mut() += 1;
        Err(transport.clone())
    };
    assert_eq!(with_retries(post, |_| true), Err(transport.clone()));
    assert_eq!(*tries.borrow(), 1);
}

#[test]
fn r2_the_caller_never_waits_and_what_does_not_fit_is_counted() {
    let (entered, inside) = bounded(1);
    let (open, gate) = bounded::<()>(0);
    let post = move |_: &str, _: &Value| {
        let _ = entered.send(());
        // Blocks until the test is over.
        let _ = gate.recv();
        Ok(())
    };
    let metrics = metrics();
    let recorder = Recorder::start_with(&metrics, post).unwrap();
    recorder.record(note("first", ""));
    inside.recv_timeout(PATIENCE).expect("the first is being posted");
    (0..QUEUE_MAX).for_each(|n| recorder.record(note(&n.to_string(), "")));
    assert_eq!(dropped(&metrics), 0);
    (0..5).for_each(|_| recorder.record(note("late", "")));
    assert_eq!(dropped(&metrics), 5);
    drop(inside);
    drop(open);
    drop(recorder);
}

#[test]
fn r6_stopping_does_not_wait_for_a_retry() {
    let (posts, posted) = bounded(10);
    let post = move |_: &str, _: &Value| {
        let _ = posts.send(());
        Err(refused(503))
    };
    let metrics = metrics();
    let recorder = Recorder::start_with(&metrics, post).unwrap();
    recorder.record(note("a", ""));
    recorder.record(note("b", ""));
    posted.recv_timeout(PATIENCE).unwrap();
    drop(recorder);
    // The thread is joined: neither the retry nor the next event was tried.
    assert_eq!(posted.len(), 0);
    assert_eq!(dropped(&metrics), 1);
}
