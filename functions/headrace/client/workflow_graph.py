"""The batches of a workflow, in which any number of steps may wait for any number of others.

A batch of the steps before it, its *join*, makes a step.  A task is in four batches at most.  A
step is in the batch of the whole workflow and in the batches that its call names, which leaves
*room* for three joins or fewer.  If more steps wait for one, *relays* are put between: tasks that
do nothing, each in up to four joins.  Steps that wait for the same steps share the first relay.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from itertools import count

from headrace.domain import limits
from headrace.domain.workflow import is_relay, relay_name


@dataclass(slots=True)
class WorkflowGraph:
    """The nodes of a workflow, steps and relays, by name.

    ``joins`` says of each that waits what for; ``feeds`` of each in whose joins it is.
    """

    joins: dict[str, list[str]] = field(default_factory=dict)
    feeds: dict[str, list[str]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @classmethod
    def of(cls, after: Mapping[str, Sequence[str]], room: Mapping[str, int]) -> "WorkflowGraph":
        """Return the graph of steps by what each waits for.

        *room* says in how many joins each may be, one at least.  The same steps have the same.
        """
        graph = cls({name: list(names) for name, names in after.items() if names})
        fed = Counter(one for names in graph.joins.values() for one in names)
        crowded = {name for name, number in fed.items() if number > room[name]}
        same: dict[frozenset[str], list[str]] = {}
        for name, names in graph.joins.items():
            same.setdefault(frozenset(names), []).append(name)
        for those, waiting in same.items():
            if len(waiting) > 1 and len(those) > 1 and those & crowded:
                relay = graph._new_relay(graph.joins[waiting[0]])
                graph.joins |= {name: [relay] for name in waiting}
        for name, names in graph.joins.items():
            for one in names:
                graph.feeds.setdefault(one, []).append(name)
        left = list(graph.feeds)
        while left:
            name = left.pop()
            left += graph._spread(name, room.get(name, limits.TASK_BATCHES))
        return graph

    def last_first(self) -> list[str]:
        """Return the nodes with a join, each after the nodes that wait for it."""
        order = TopologicalSorter({name: self.feeds.get(name, ()) for name in self.joins})
        return [name for name in order.static_order() if name in self.joins]

    def first_fed(self, name: str) -> str:
        """Return the node itself, or the first step that comes of a relay."""
        while is_relay(name):
            name = self.feeds[name][0]
        return name

    def _new_relay(self, names: Sequence[str]) -> str:
        relay = relay_name(next(self._numbers))
        self.joins[relay] = list(names)
        return relay

    def _spread(self, name: str, room: int) -> list[str]:
        """Let relays stand for a node where it is in too many joins; return them."""
        fed = self.feeds[name]
        if len(fed) <= room:
            return []
        relays: list[str] = []
        feeds: list[str] = []
        for part in range(room):
            some = fed[part::room]
            if len(some) == 1:
                feeds += some
                continue
            relay = self._new_relay([name])
            for one in some:
                self.joins[one] = [relay if it == name else it for it in self.joins[one]]
            self.feeds[relay] = some
            feeds.append(relay)
            relays.append(relay)
        self.feeds[name] = feeds
        return relays
