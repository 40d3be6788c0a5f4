"""A Django project in this process, over the tables of `audit`, and the rules that the tests give to `watch`.

Django has one connection for each thread and name. The names `default` and `other` are two connections to one database.
"""

from __future__ import annotations

import django
from django.conf import settings
from django.db import connections

settings.configure(DATABASES={}, INSTALLED_APPS=["watched.django_app"], USE_TZ=True)
django.setup()

from watched.audit import tens  # noqa: E402  only a Django that is set up has models
from watched.django_app.models import Price, Product, Tag  # noqa: E402  as above

__all__ = ["KEYS", "NAMES", "Price", "Product", "Tag", "connect", "disconnect"]

NAMES = ("default", "other")
KEYS = {
    Product: "product:{id}",
    Price: ["price:{sku}", "product:{product_id}", lambda row: [tens(row.amount)]],
}


def connect(url):
    """Both names lead to this database."""
    for name in NAMES:
        connections.settings[name] = connections.configure_settings(
            {"default": {"ENGINE": "django.db.backends.postgresql", **parts(url)}}
        )["default"]


def parts(url):
    """postgresql://user@host:port/name, as Django wants it."""
    where, _, name = url.removeprefix("postgresql://").rpartition("/")
    user, _, address = where.rpartition("@")
    host, _, port = address.partition(":")
    return {"NAME": name, "USER": user, "HOST": host, "PORT": port}


def disconnect():
    """Ends this thread's connections."""
    for name in NAMES:
        connections[name].close()
        del connections[name]
