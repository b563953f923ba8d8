"""What several use cases have in common: queues, leases, limits, removals, audit, cursors."""
