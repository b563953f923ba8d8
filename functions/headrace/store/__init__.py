"""Where tasks and queues are kept: one protocol, one suite of promises, two stores."""
