"""What was: read from the stream of the tasks table, counted, kept in the lake, shown."""
