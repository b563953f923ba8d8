"""Tasks as functions: declaring them, enqueueing them, and running what a worker dequeued."""
