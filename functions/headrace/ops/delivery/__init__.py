"""From a task that waits to a report of what became of it, and what the reaper ends."""
