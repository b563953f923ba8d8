"""All checks, in the order in which they are made.

Each leaves the next what it needs.  What comes about by itself is set going first and looked for
last; then all is deleted.
"""

from typing import Final

from headrace.cli.checks import beside, operators, queues, service, tasks, waiting
from headrace.cli.checks.run import Check

FIRST: Final = (
    Check("service", service.reachable),
    Check("key", service.admin),
)
"""Without these there is nothing to check."""

OTHERS: Final = (
    Check("queue: create", queues.create, vital=True),
    Check("schedule: put", waiting.put_schedule),
    Check("lease: left to lapse", waiting.let_lapse),
    Check("key: make", operators.create_key),
    Check("key: list", operators.list_keys),
    Check("key: where it may not", operators.forbidden),
    Check("key: rotate", operators.rotate_key),
    Check("key: revoke", operators.revoke_key),
    Check("document: OpenAPI", service.openapi),
    Check("document: page", service.docs),
    Check("queue: name taken", queues.taken),
    Check("queue: show", queues.show),
    Check("queue: list", queues.listed),
    Check("queue: replace", queues.replace),
    Check("queue: old version", queues.outdated),
    Check("queue: pause", queues.pause),
    Check("queue: resume", queues.resume),
    Check("task: enqueue", tasks.enqueue),
    Check("task: same ids again", tasks.again),
    Check("task: dedupe key", tasks.duplicate),
    Check("task: show", tasks.show),
    Check("task: explain", tasks.explain),
    Check("task: list", tasks.listed),
    Check("task: count", tasks.count),
    Check("task: dequeue", tasks.dequeue),
    Check("task: heartbeat", tasks.heartbeat),
    Check("task: report", tasks.report),
    Check("task: reports again", tasks.reported_again),
    Check("task: outcomes", tasks.outcomes),
    Check("tasks: restart", tasks.restart),
    Check("lease: open", operators.open_lease),
    Check("lease: extend", operators.extend_lease),
    Check("lease: close", operators.close_lease),
    Check("tasks: run", tasks.run),
    Check("tasks: move", tasks.move),
    Check("answer of 1 MB", tasks.large),
    Check("tasks: delete", tasks.delete_many),
    Check("task: delete", tasks.delete),
    Check("schedule: show", waiting.get_schedule),
    Check("schedule: run", waiting.run_schedule),
    Check("worker: sign of life", operators.put_worker),
    Check("worker: list", operators.list_workers),
    Check("worker: quiet", operators.quiet_worker),
    Check("worker: stop", operators.stop_worker),
    Check("audit", operators.audit),
    Check("refusal: no key", service.no_key),
    Check("refusal: no such path", service.no_path),
    Check("refusal: no such queue", service.no_queue),
    Check("refusal: bad field", service.bad_field),
    Check("refusal: too large", service.too_large),
    Check("NGSI: notify", beside.notify),
    Check("NGSI: list", beside.list_notified),
    Check("NGSI: summary", beside.summarize_notified),
    Check("NGSI: count", beside.count_notified),
    Check("NGSI: delete", beside.delete_notified),
    Check("console: page", beside.console_page),
    Check("console: sign in", beside.sign_in),
    Check("console: sign out", beside.sign_out),
    Check("stream: metrics", waiting.metrics),
    Check("stream: stats", waiting.stats),
    Check("queue: recount", waiting.recount),
    Check("key: refused once revoked", operators.revoked),
    Check("lease: taken back", waiting.reclaimed),
    Check("schedule: tick", waiting.ticked),
    Check("schedule: delete", waiting.delete_schedule),
    Check("queue: purge", queues.purge),
    Check("queue: delete", queues.delete),
    Check("headers of all answers", service.headers),
    Check("operations of the API", service.covered),
)
