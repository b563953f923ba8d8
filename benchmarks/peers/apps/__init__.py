"""One small application a peer, all with the same task and the same two functions.

``prepare()`` makes ready what enqueueing needs; ``enqueue(numbers)`` enqueues a task for each, as
the peer does it best. The harness names the broker in the environment.
"""
