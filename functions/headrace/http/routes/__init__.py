"""The routes, by noun: a body comes in, a use case is called, an answer goes out."""
