from django.core.cache import caches
from django.http import Http404, JsonResponse
from django.urls import path

from shop.models import Product


def product(request, cache, shop, number):
    key = f"{cache}:{shop}:{number}"
    value = caches[cache].get(key)
    if value is None:
        value = Product.objects.filter(id=number).values().first()
        if value is None:
            raise Http404
        caches[cache].set(key, value)
    return JsonResponse({**value, "name": value["name"].upper()})


urlpatterns = [path("<str:cache>/<str:shop>/<int:number>", product)]
