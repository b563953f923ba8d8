"""The shape of answers about group leases."""

from headrace.http.answers import Answer, Lease


class Leased(Answer):
    """A group lease."""

    lease: Lease


SHOWN: tuple[type[Answer], ...] = (Leased,)
"""What routes name in their documented answers."""
