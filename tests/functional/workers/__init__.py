"""Programs that tests start as workers."""
