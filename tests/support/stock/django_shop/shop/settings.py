"""The project's settings. The environment has the addresses of the database and Redis."""

from os import environ  # noqa: TID251  how the test tells its child

USE_TZ = True
ROOT_URLCONF = "shop.urls"
ALLOWED_HOSTS = ["testserver"]
SECRET_KEY = "of a test"
LOGGING_CONFIG = None
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": environ["SHOP_DB"]}}
REDIS = {
    "BACKEND": "django.core.cache.backends.redis.RedisCache",
    "LOCATION": environ["SHOP_REDIS"],
    "TIMEOUT": 300,
}
CACHES = {
    "default": REDIS,
    "json": REDIS | {"VERSION": 2, "OPTIONS": {"serializer": "shop.serializers.Json"}},
}
