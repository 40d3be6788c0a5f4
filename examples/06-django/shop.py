"""A Django project in one file. The line of CACHES is all that knows of cacheupdater, beside the app with `runupdater`."""

import os
import sys

import django
from django.conf import settings

REDIS = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
CACHES = {"default": {"BACKEND": "cacheupdater_client.django.cache.RedisCache", "LOCATION": REDIS}}

settings.configure(
    CACHES=CACHES,
    DATABASES={
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("SHOP_DB", "shop.db")}
    },
    INSTALLED_APPS=["cacheupdater_client.django"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of an example",
    ALLOWED_HOSTS=["127.0.0.1"],
)
django.setup()

from django.core.cache import cache  # noqa: E402
from django.core.management import execute_from_command_line  # noqa: E402
from django.db import connection, models  # noqa: E402
from django.http import HttpResponse, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402
from django.views.decorators.cache import cache_page  # noqa: E402


class Product(models.Model):
    name = models.CharField(max_length=100)
    cents = models.IntegerField()

    class Meta:
        app_label = "shop"
        db_table = "products"

    def __str__(self):
        return self.name


def product(request, number):
    value = cache.get_or_set(f"product:{number}", lambda: Product.objects.values().get(id=number), 300)
    return JsonResponse(value)


def products(request, first, last):
    found = cache.get_many([f"product:{number}" for number in range(first, last + 1)])
    return JsonResponse(found)


def change(request, number, cents):
    Product.objects.filter(id=number).update(cents=cents)
    cache.delete(f"product:{number}")
    return HttpResponse("changed")


@cache_page(60)
def page(request):
    return HttpResponse(os.urandom(8).hex())


urlpatterns = [
    path("product/<int:number>", product),
    path("products/<int:first>-<int:last>", products),
    path("change/<int:number>/<int:cents>", change),
    path("page", page),
]

if __name__ == "__main__":
    if sys.argv[1:] == ["fill"]:
        with connection.schema_editor() as editor:
            editor.create_model(Product)
        Product.objects.bulk_create(Product(id=n, name=f"product {n}", cents=100 * n) for n in range(1, 31))
    else:
        execute_from_command_line(sys.argv)
