"""A DynamoDB that costs nothing: it answers every scan with pages made beforehand.

What is measured against it is the reader alone.
"""

import json
import multiprocessing
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any, Final

_START: Final = re.compile(rb'"ExclusiveStartKey": ?\{"task_id": ?\{"S": ?"(\d+)"')
_MARK: Final = "@NEXT@"
PAGE_ITEMS: Final = 1_800
"""Of a page: about 1 MB, as DynamoDB's."""


@contextmanager
def serving(items: Sequence[dict[str, Any]], pages: int) -> Iterator[str]:
    """Serve a table of *pages* pages in each segment, in a process of its own; yield its URL."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(theirs, list(items), pages), daemon=True
    )
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def _serve(reported: Connection, items: list[dict[str, Any]], pages: int) -> None:
    body = {"Items": items, "Count": len(items), "ScannedCount": len(items)}
    last = json.dumps(body).encode()
    more = json.dumps({**body, "LastEvaluatedKey": {"task_id": {"S": _MARK}}}).encode()
    before, after = more.split(_MARK.encode())

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            requested = self.rfile.read(int(self.headers["Content-Length"]))
            start = _START.search(requested)
            page = int(start[1]) if start else 0
            parts = [last] if page + 1 >= pages else [before, b"%d" % (page + 1), after]
            self.send_response(200)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(sum(map(len, parts))))
            self.end_headers()
            for part in parts:
                self.wfile.write(part)

        def log_message(self, *_: object) -> None:
            """Say nothing of each request."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        reported.send(server.server_port)
        server.serve_forever()
