"""Examples that run against a Headrace service; nothing in the service imports them."""
