"""Sends the demo's notifications to the service, from several threads at once."""

import threading
from collections.abc import Callable, Iterator, Sequence

from examples.ngsi.http_client import QueueClient, Tally
from examples.ngsi.traffic import Notification

THREADS = 4
ANSWER = "Notification successfully processed"


class PostingFailed(Exception):
    """A notification was not taken as it should be; the text says which and why."""


class Posting:
    """The threads that post, how far they are, and the first error of any of them."""

    def __init__(
        self, url: str, key: str, sent: Sequence[Notification], at_half: Callable[[], None]
    ) -> None:
        """``at_half`` is called once, before the second half is sent."""
        self._client = QueueClient(url, key, connections=THREADS)
        self._waiting: Iterator[tuple[int, Notification]] = iter(enumerate(sent))
        self._half = len(sent) // 2
        self._at_half = at_half
        self._lock = threading.Lock()
        self._posted = 0
        self._error: Exception | None = None
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(THREADS)]

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    @property
    def posted(self) -> int:
        """How many notifications the service has taken."""
        with self._lock:
            return self._posted

    @property
    def tally(self) -> Tally:
        """What that cost."""
        return self._client.tally

    @property
    def done(self) -> bool:
        """Whether all of them are sent; raises PostingFailed when one was not taken."""
        with self._lock:
            if self._error is not None:
                raise PostingFailed(str(self._error)) from self._error
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Send no more, and close the connections when those under way are through."""
        with self._lock:
            self._waiting = iter(())
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        self._client.close()

    def _run(self) -> None:
        try:
            while (notification := self._next()) is not None:
                self._post(notification)
                with self._lock:
                    self._posted += 1
        except Exception as error:  # noqa: BLE001 (raised again by `done`)
            with self._lock:
                self._error = self._error or error
                self._waiting = iter(())

    def _post(self, notification: Notification) -> None:
        answer = self._client.notify(notification.body_bytes(), notification.headers)
        if answer.strip().strip('"') != ANSWER:
            raise PostingFailed(f"{notification.correlator}: answered {answer!r}")

    def _next(self) -> Notification | None:
        with self._lock:
            place, notification = next(self._waiting, (0, None))
            if notification is not None and place == self._half:
                self._at_half()
            return notification
