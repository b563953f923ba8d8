"""What several use cases have in common: queues, leases, limits, jobs, audit, cursors."""
