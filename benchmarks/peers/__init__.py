"""How fast two workers drain a queue of tasks that do nothing: Headrace beside its peers.

`make bench-peers` runs it. `apps` and the two modules they need, `stamp` and `produce`, also run in
the peers' own virtual environment, and import nothing of what only ours has.
"""
