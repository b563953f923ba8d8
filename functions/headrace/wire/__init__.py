"""The answers of the API and their fields, once: the service encodes them, the SDK decodes them."""
