"""The deterministic simulation: the whole service, its callers and all that can go wrong.

``scenario`` draws what happens from a seed; ``run`` plays it on one virtual clock (``stage``), over
a store whose calls fail (``faults``), by processes that die (``world``), with ``actors`` that call
the API and the service's own ``background`` jobs.  Then nothing fails any more, workers succeed,
and ``checks`` looks at the log of all writes: each check is a promise of docs/semantics.md.

    python -m tests.simulation --seeds 1000       # many; the first failure of each is printed
    python -m tests.simulation --seed 17          # one, with its story

With ``PYTHONHASHSEED=0`` a seed gives the same run in every process.
"""
