"""Tasks one by one: put in, looked at, explained."""
