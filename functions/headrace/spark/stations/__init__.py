"""Stations: Spark jobs that take tasks from one queue and move them on to the next."""
