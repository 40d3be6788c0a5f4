"""What INSTALLED_APPS finds behind `cacheupdater_client.django`: the home of the command `runupdater`. It has no models."""

from __future__ import annotations

from django.apps import AppConfig


class CacheupdaterConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """The app. Its label is not `django`, which it would be by its path."""

    name = "cacheupdater_client.django"
    label = "cacheupdater"
