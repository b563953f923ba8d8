"""The peers' own side of the pages for people who come from them (`make test-peers`)."""
