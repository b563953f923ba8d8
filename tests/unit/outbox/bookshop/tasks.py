"""What the shop does later."""

from headrace import App
from headrace.outbox.django import DjangoOutbox

app = App()
outbox = DjangoOutbox()


@app.task(queue="mail", name="invoice")
def send_invoice(book: str) -> None:
    """Send it."""
