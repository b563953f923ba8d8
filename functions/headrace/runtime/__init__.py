"""What runs the use cases: settings, clients, clock, telemetry."""
