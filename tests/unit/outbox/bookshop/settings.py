"""The settings of the project; the tests say where its databases are."""

import os

SECRET_KEY = "of-a-test"
INSTALLED_APPS = ["headrace.outbox.django", "tests.unit.outbox.bookshop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "Europe/Madrid"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("BOOKSHOP_SQLITE", ":memory:"),
    },
    "postgres": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": "127.0.0.1",
        "NAME": "postgres",
        "USER": "shop",
        "PORT": os.environ.get("BOOKSHOP_POSTGRES_PORT", "1"),
    },
}
