"""The lake: the history of every task in tables, the jobs that keep them, and what they prove."""
