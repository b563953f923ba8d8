"""What runs the use cases: settings, clients, clock, metrics."""
