"""The worker: takes tasks, runs them within their leases, and reports what came of them."""
