//! A simulated Kubernetes API server, the scenario suites, and the tests that hold the house rules.
