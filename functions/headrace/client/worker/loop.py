"""The threads of a worker, each of which takes one step after the other."""

import logging

from headrace.client.threads import PeriodicThread, Step

_log = logging.getLogger("headrace.worker")


def worker_thread(name: str, step: Step) -> PeriodicThread:
    """The thread that takes *step* again and again; a fault in it does not end the worker."""
    fault = "A fault of the worker itself, in thread %s"
    return PeriodicThread(f"headrace-{name}", step, log=_log, fault=fault)
