"""The worker: it leases tasks, runs them, and reports their results."""
