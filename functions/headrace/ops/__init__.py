"""The use cases: read, plan, commit.  Clock, ids and chance are handed in."""
