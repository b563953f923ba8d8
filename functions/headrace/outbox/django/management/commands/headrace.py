"""`manage.py headrace …`: the whole command, in a program that has Django's settings."""

from collections.abc import Sequence

from django.core.management.base import BaseCommand

from headrace.__main__ import main


class Command(BaseCommand):
    """Hand everything on, as it is: `manage.py headrace work shop.tasks:app --outbox django:`."""

    help = "Run a command of Headrace's, in this project."

    def run_from_argv(self, argv: Sequence[str]) -> None:
        """Run what comes after the name of this command."""
        main(argv[2:], name="manage.py headrace")
