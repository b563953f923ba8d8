"""Search by value: the index, and the queries of lists.  The core does not know it."""
