"""A mail sender: `headrace work examples.mail.app:app`, from the checkout's folder.

``MAIL_HOST`` and ``MAIL_PORT`` say where the mail server is (localhost, 25), ``MAIL_FROM`` who
sends.
"""

import os
import smtplib
from email.message import EmailMessage

from headrace import App, Context, Reject

app = App(queue="letters")
app.queue("letters", retry_strategy={"max_retries": 8, "base_seconds": 30})

SOME = 20  # tasks that one attempt makes; at most 24
_BUSY = 500  # answers below say "try again later"


@app.task(timeout=60, dedupe_key="{to}:{subject}")
def send(ctx: Context, to: str, subject: str, text: str) -> str:
    """Send one mail.  A server that is away or busy is tried again, a bad address is not."""
    mail = EmailMessage()
    try:
        mail["To"], mail["Subject"] = to, subject
    except ValueError as error:
        raise Reject(f"no mail can be made of this: {error}") from error
    mail["From"] = os.environ.get("MAIL_FROM", "headrace@example.com")
    # The same in every attempt: servers drop the second of two mails with one Message-ID.
    message_id = mail["Message-ID"] = f"<{ctx.id}@headrace>"
    mail.set_content(text)
    host, port = os.environ.get("MAIL_HOST", "localhost"), int(os.environ.get("MAIL_PORT", "25"))
    try:
        with smtplib.SMTP(host, port, timeout=20) as server:
            server.send_message(mail)
    except smtplib.SMTPRecipientsRefused as error:
        code, reason = next(iter(error.recipients.values()))
        if code < _BUSY:
            raise
        raise Reject(f"{to} was refused: {code} {reason.decode(errors='replace')}") from error
    return message_id


@app.task
def newsletter(ctx: Context, subject: str, text: str, to: list[str]) -> None:
    """Write to everybody: a few mails, and a task for the rest, made in one write or not at all."""
    now, later = to[:SOME], to[SOME:]
    for address in now:
        ctx.spawn(send, {"to": address, "subject": subject, "text": text})
    if later:
        ctx.spawn(newsletter, {"subject": subject, "text": text, "to": later})


@app.periodic(cron="0 8 * * MON", timezone="Europe/Madrid")
@app.task
def weekly(ctx: Context) -> None:
    """Send the news of the week to the subscribers."""
    to = os.environ.get("MAIL_SUBSCRIBERS", "").split()
    if to:
        ctx.spawn(newsletter, {"subject": "This week", "text": "What is new …", "to": to})


if __name__ == "__main__":
    sent = send.enqueue(to="ada@example.com", subject="Hello", text="It works.")
    print(sent.outcome, sent.id)
