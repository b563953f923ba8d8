"""What is true of tasks and queues, with no I/O and nothing but the standard library."""
