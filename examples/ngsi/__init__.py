"""The demo: NGSI sensor notifications on their way through two durable queues."""
