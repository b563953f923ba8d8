"""Entry points: the handlers of the Lambda functions, which the local service calls too.

Lambda finds them by the modules beside the package (`api.handler`). In a wheel, such modules could
clash with other packages.
"""
