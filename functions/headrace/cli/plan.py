"""`headrace plan`: what a load takes and costs, with the arithmetic."""

from dataclasses import asdict, replace
from typing import Any, Final

import click

from headrace.cli import params
from headrace.cli.commands import CliCommand
from headrace.cli.output import answer, console, grid, many, write
from headrace.cli.session import CliSession
from headrace.domain import cost, limits

_USUAL_PAYLOAD: Final = 200
"""Bytes, where none are given: those of the tasks that `make bench` measures."""


def _price(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        usd = float(value)
    except ValueError:
        usd = -1.0
    if name not in cost.price_names() or not 0 <= usd < float("inf"):
        raise click.BadParameter(
            f"{text!r} is no price such as write=0.705; "
            + ", ".join(f"{one}: USD for {of}" for one, of in cost.price_names().items())
        )
    return name, usd


@click.command(
    "plan",
    cls=CliCommand,
    example="headrace plan --rate 50/s --payload 2KB --history 7d --retries 0.1",
)
@click.option(
    "--rate",
    type=params.per_second,
    required=True,
    metavar="N/TIME",
    help="Tasks: 50/s, 3000/m, 1e6/d; a bare number is per second.",
)
@click.option(
    "--payload",
    type=params.size_bytes,
    metavar="BYTES",
    help=f"Of one task, as JSON: {_USUAL_PAYLOAD}.",
)
@click.option(
    "--history",
    type=params.seconds,
    default="1d",
    metavar="TIME",
    help="How long tasks that succeeded are kept: 1d; 0 keeps none.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, limits.BATCH),
    default=limits.BATCH,
    metavar="N",
    help="Tasks in one call, 1 to 25; 25.",
)
@click.option(
    "--retries",
    type=click.FloatRange(0, limits.MAX_RETRIES[1]),
    default=0.0,
    metavar="N",
    help="Further tries of a task, on average: 0.1 is one in ten.",
)
@click.option(
    "--heartbeats",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="N",
    help="Of a task, on average: its run time by a third of its lease.",
)
@click.option(
    "--offload",
    type=params.size_bytes,
    default=f"{cost.OFFLOAD_BYTES_DEFAULT // limits.KIB}KiB",
    metavar="BYTES",
    help="Larger payloads are kept in S3 (PayloadOffloadBytes): 32KiB; 0 keeps all in the table.",
)
@click.option(
    "--price",
    "prices",
    type=_price,
    multiple=True,
    metavar="NAME=USD",
    help="Another region's price: " + ", ".join(cost.price_names()) + ".",
)
@click.option(
    "--over-tables",
    is_flag=True,
    help="Programs use the tables themselves (dynamodb://REGION/STACK): no API Gateway, no Lambda.",
)
@click.pass_obj
def plan_command(
    session: CliSession,
    /,
    rate: float,
    payload: int | None,
    prices: tuple[tuple[str, float], ...],
    **given: Any,
) -> None:
    """Reckon shards, units and monthly cost of a load.

    By the formulas that the project's bench measures against.  Prices are those of us-east-1
    without free tiers; the time of Lambda is an estimate.
    """
    if rate <= 0:
        raise click.BadParameter("must be more than 0", param_hint="'--rate'")
    size = _USUAL_PAYLOAD if payload is None else payload
    if size > limits.PAYLOAD_BYTES:
        raise click.BadParameter(
            f"a payload has at most {limits.PAYLOAD_BYTES:,} bytes", param_hint="'--payload'"
        )
    load = cost.Load(
        rate=rate,
        payload_bytes=size,
        history_seconds=given["history"],
        batch=given["batch"],
        retries=given["retries"],
        heartbeats=given["heartbeats"],
        offload_bytes=given["offload"],
    )
    chosen = replace(cost.Prices(), **dict(prices))
    over_tables = given["over_tables"]
    bill = cost.bill(load, chosen, over_tables=over_tables)
    idle = cost.idle_worker_usd(chosen, over_tables=over_tables)
    whole = {
        **asdict(bill),
        "lines": [{**asdict(line), "usd": line.usd} for line in bill.lines],
        "tasks_per_month": bill.tasks,
        "usd_per_month": bill.usd,
        "idle_worker_usd_per_month": idle,
    }
    answer(session, whole, lambda: _show(bill, idle, assumed=payload is None))


def _show(bill: cost.Bill, idle_worker_usd: float, *, assumed: bool) -> None:
    load, size = bill.load, bill.item_units
    out = console()
    out.print(
        f"{load.rate:g} tasks/s x {cost.MONTH_SECONDS:,} s = {bill.tasks:,.0f} tasks in 30 days"
    )
    if assumed:
        out.print(f"Payload     {load.payload_bytes:,} bytes, as no --payload is given")
    out.print(
        f"Shards      {bill.shards}: {load.rate:g} tasks/s x {1 + load.retries:g} "
        f"{'deliveries' if load.retries else 'delivery'}, {cost.SHARD_DELIVERIES} deliveries/s each"
    )
    if bill.shards > limits.SHARDS[1]:
        out.print(
            f"            A queue has at most {limits.SHARDS[1]}: "
            f"spread the load over {-(-bill.shards // limits.SHARDS[1])} queues."
        )
    out.print(
        f"Item        {size} write units: ({load.inside_bytes:,} + {cost.OVERHEAD_BYTES} bytes)"
        " in KB, rounded up"
    )
    if load.offloads:
        out.print(
            f"            The payload ({load.payload_bytes:,} bytes) is in S3: it is over"
            f" {load.offload_bytes:,}"
        )
    out.print(f"Task        {bill.units.write:g} write units: {_life(load)}")
    out.print(f"            {bill.units.read:.3g} read units: half of one for each dequeue call")
    if bill.calls:
        out.print(f"Calls       {_calls(load)}")
        out.print(
            f"            {many(load.batch, 'task')} in each: {bill.calls:.3g} calls for one task"
        )
    else:
        out.print("Calls       none of the API: programs use the tables themselves")
    out.print()
    made = grid("In a month", "Amount", "Price", "USD", right=("Amount", "Price", "USD"))
    for line in bill.lines:
        stored = line.name.endswith("storage")
        per = "a million" if line.per > 1 else "a GB" if stored else "each"
        amount = f"{_amount(line.amount)} GB" if stored else _amount(line.amount)
        made.add_row(line.name, amount, f"{_plain(line.price)} {per}", f"{line.usd:,.2f}")
    made.add_row("Together", "", "", f"{bill.usd:,.2f}")
    write(made)
    out.print()
    out.print(
        "Not counted: logs, alarms, transfer, authorizer, and workers that wait "
        f"(USD {idle_worker_usd:,.2f} a month for each that finds nothing at all)."
    )


def _life(load: cost.Load) -> str:
    """Say what the write units of a task are made of."""
    size, kept = load.inside_bytes, load.history_seconds > 0
    parts = [
        f"enqueue {cost.enqueue(size).write:g}",
        f"dequeue {cost.dequeue(size).write:g}",
        f"succeed {cost.settle(size, kept=kept).write:g}",
    ]
    if load.retries:
        again = cost.dequeue(size).write + cost.settle(size).write
        parts.append(f"retries {load.retries:g} x {again:g}")
    if load.heartbeats:
        parts.append(f"heartbeats {load.heartbeats:g} x {cost.heartbeat(size).write:g}")
    return " + ".join(parts)


def _calls(load: cost.Load) -> str:
    parts = ["enqueue 1 + dequeue 1 + report 1"]
    if load.retries:
        parts.append(f"retries {load.retries:g} x 2")
    if load.heartbeats:
        parts.append(f"heartbeats {load.heartbeats:g}")
    return " + ".join(parts)


def _plain(price: float) -> str:
    """Write a price without an exponent."""
    return f"{price:.10f}".rstrip("0").rstrip(".")


def _amount(number: float) -> str:
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return (
                f"{number / size:.3g}{unit}"
                if number < size * 1000
                else f"{number / size:,.0f}{unit}"
            )
    return f"{number:.3g}"
