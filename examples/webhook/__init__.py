"""Calling other people's servers, at a rate they can bear."""
