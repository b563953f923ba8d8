"""Sends the demo's notifications as a context broker would: plain HTTP, several at once."""

import threading
from collections.abc import Callable, Iterator, Sequence

import httpx2 as httpx

from examples.ngsi.traffic import Notification
from headrace.client.calls import UNITS_HEADER, Consumed, Usage

THREADS = 4
TIMEOUT_SECONDS = 15.0
ANSWER = "Notification successfully processed"


class PostingFailed(Exception):
    """A notification was not taken as it should be; the text says which and why."""


class Posting:
    """The threads that post, how far they are, and the first error of any of them."""

    def __init__(
        self, url: str, key: str, sent: Sequence[Notification], at_half: Callable[[], None]
    ) -> None:
        """``at_half`` is called once, before the second half is sent."""
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
            timeout=TIMEOUT_SECONDS,
        )
        self._tally = Usage()
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
    def consumed(self) -> Consumed:
        """What that cost."""
        return self._tally.so_far

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
        self._http.close()

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
        answer = self._http.post(
            "/v2/notify", content=notification.body_bytes(), headers=notification.headers
        )
        self._tally.add(answer.headers.get(UNITS_HEADER))
        if not answer.is_success or answer.text != ANSWER:
            answered = f"{answer.status_code} {answer.text:.500}"
            raise PostingFailed(f"{notification.correlator}: answered {answered}")

    def _next(self) -> Notification | None:
        with self._lock:
            place, notification = next(self._waiting, (0, None))
            if notification is not None and place == self._half:
                self._at_half()
            return notification
