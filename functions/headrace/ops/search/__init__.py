"""Search by value: the index, the queries of lists, and saved views.  The core does not know it."""
