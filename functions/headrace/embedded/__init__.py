"""The service within a program: the use cases in this process, over a file or tables."""
