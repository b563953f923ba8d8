"""The outbox as Django's app."""

from django.apps import AppConfig

LABEL = "headrace_outbox"


class OutboxConfig(AppConfig):
    """Names the app so that its table and migrations say whose they are."""

    name = "headrace.outbox.django"
    label = LABEL
    verbose_name = "Headrace outbox"
