//! What the API server says of itself: requests by verb.

use std::collections::BTreeMap;

use crate::api::Api;
use crate::failure::Failure;

/// `apiserver_request_total` by resource and verb.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requests(BTreeMap<(String, String), f64>);

impl Requests {
    /// As counted until now.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub fn now(api: &Api) -> Result<Requests, Failure> {
        Ok(Requests::of(&api.text("/metrics")?))
    }

    fn of(metrics: &str) -> Requests {
        let mut counts = BTreeMap::new();
        let samples = metrics.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{"));
        for sample in samples {
            let Some((labels, count)) = sample.rsplit_once("} ") else { continue };
            let key = (label(labels, "resource"), label(labels, "verb"));
            *counts.entry(key).or_default() += count.parse().unwrap_or(0.0);
        }
        Requests(counts)
    }

    /// Those that have come since.
    pub fn since(&self, before: &Requests) -> Requests {
        let less = |(key, count): (&(String, String), &f64)| {
            (key.clone(), count - before.0.get(key).copied().unwrap_or(0.0))
        };
        Requests(self.0.iter().map(less).filter(|(_, count)| *count > 0.0).collect())
    }

    /// For single objects of a resource: everything but lists and watches.
    pub fn for_single(&self, resource: &str) -> f64 {
        let is_single = |verb: &str| !["LIST", "WATCH", "WATCHLIST"].contains(&verb);
        let those = self.0.iter().filter(|((of, verb), _)| of == resource && is_single(verb));
        those.fold(0.0, |sum, (_, count)| sum + count)
    }

    /// By verb, for one resource, as `GET 5, DELETE 7`.
    pub fn by_verb(&self, resource: &str) -> String {
        let those = self.0.iter().filter(|((of, _), _)| of == resource);
        let words: Vec<String> = those.map(|((_, verb), count)| format!("{verb} {count}")).collect();
        words.join(", ")
    }
}

fn label(labels: &str, name: &str) -> String {
    let mut all = labels.split(',').filter_map(|label| label.split_once("=\""));
    let value = all.find(|(key, _)| *key == name).map(|(_, value)| value.trim_end_matches('"'));
    value.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_resource_and_verb() {
        let line = |code: u32, resource: &str, verb: &str, count: u32| {
            format!(
                "apiserver_request_total{{code=\"{code}\",group=\"\",resource=\"{resource}\",verb=\"{verb}\"}} {count}\n"
            )
        };
        let before = Requests::of(&line(200, "configmaps", "GET", 3));
        let page = line(200, "configmaps", "GET", 4)
            + &line(404, "configmaps", "GET", 5)
            + &line(200, "configmaps", "LIST", 100)
            + &line(200, "configmaps", "DELETE", 7)
            + &line(200, "leases", "GET", 9)
            + "apiserver_request_totals 5\n";
        let since = Requests::of(&page).since(&before);
        assert_eq!(since.for_single("configmaps"), 13.0);
        assert_eq!(since.by_verb("configmaps"), "DELETE 7, GET 6, LIST 100");
    }
}
