"""A Django app that sells books, and its tasks."""
