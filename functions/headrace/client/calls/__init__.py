"""Every endpoint of the API, described once for both clients."""
