"""The whole service on one machine: the API and the console on uvicorn, over a file.

`python -m headrace.local` starts it.  The errors here say in one line why it cannot start, and what
to do.
"""


class LocalServiceError(Exception):
    """The service cannot start or go on; the text is shown to a person as it is."""


class EndpointRefused(LocalServiceError):
    """The DynamoDB endpoint does not answer, or refuses what the service needs."""


class DataFolderUnusable(LocalServiceError):
    """The data folder cannot be used: not writable, or what it keeps is broken."""


class DataFolderInUse(DataFolderUnusable):
    """Another service is working in the same data folder."""


class PortUnusable(LocalServiceError):
    """The port cannot be listened on."""


class SettingInvalid(LocalServiceError):
    """An environment variable holds something that cannot be used."""


class ServiceUnhealthy(LocalServiceError):
    """Everything has started, but `/v1/health` does not answer 200."""
