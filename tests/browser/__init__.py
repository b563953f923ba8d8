"""The console in a real browser: `make test-browser`; `make test` leaves this folder out."""
