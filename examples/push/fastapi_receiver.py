"""A receiver in FastAPI: `uvicorn examples.push.fastapi_receiver:app`.

HEADRACE_SIGNING_SECRET is what `headrace queue secret hooks` shows.
"""

import os

from fastapi import FastAPI, Request, Response

from headrace import webhooks

app = FastAPI()
done: set[str] = set()  # in earnest a table: a task may come twice


@app.post("/tasks", response_model=None)
async def receive(request: Request) -> dict[str, object] | Response:
    """Do one task; what is returned is its result."""
    body = await request.body()
    try:
        webhooks.verify(body, request.headers, os.environ["HEADRACE_SIGNING_SECRET"])
    except webhooks.WebhookInvalid as error:
        return Response(str(error), status_code=401)
    task_id = request.headers["webhook-id"]  # the same whenever this task comes again
    if task_id in done:
        return {"done": "before"}
    payload = await request.json()
    if "to" not in payload:
        return Response("to is missing", status_code=422)  # about this task: it is dead at once
    done.add(task_id)
    return {"sent": payload["to"]}
