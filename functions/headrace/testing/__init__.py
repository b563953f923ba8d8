"""What tests of programs that use Headrace need: a service in memory, a clock, faults."""
