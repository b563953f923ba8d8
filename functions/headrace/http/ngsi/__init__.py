"""NGSI: notifications of a context broker, and QuantumLeap's management of their queue."""
