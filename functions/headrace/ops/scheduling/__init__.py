"""Schedules, and the tasks that their ticks make."""
