"""What people do: many tasks at once, keys and sessions, workers, and what each may see."""
