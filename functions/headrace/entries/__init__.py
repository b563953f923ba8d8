"""Entry points: what Lambda calls for each function, and the local service in its place.

Lambda finds them by the modules beside the package (`api.handler`), which would be in the way of
other people's modules in a wheel.
"""
