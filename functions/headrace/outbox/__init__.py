"""Tasks enqueued in the transaction of the user's own database: committed with it, or not at all.

The task is written as a row beside the user's data, under the id it will have.  A relay enqueues
what is committed and removes the row afterwards.  One that ends between the two leaves the row to
the next, whose enqueue of the same id changes nothing.
"""
