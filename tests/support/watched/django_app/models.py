"""The tables of `watched.audit` as Django maps them. Django imports this module itself, once it is configured."""

from __future__ import annotations

from django.db import models


class Product(models.Model):  # noqa: DJ008  never shown
    id = models.AutoField(primary_key=True)
    name = models.TextField()
    price = models.IntegerField()

    class Meta:
        db_table = "products"
        managed = False


class Price(models.Model):  # noqa: DJ008  never shown
    id = models.AutoField(primary_key=True)
    sku = models.TextField()
    product = models.ForeignKey(Product, models.CASCADE, null=True, db_constraint=False)
    amount = models.IntegerField()

    class Meta:
        db_table = "prices"
        managed = False


class Tag(models.Model):  # noqa: DJ008  never shown
    id = models.AutoField(primary_key=True)
    name = models.TextField()
    products = models.ManyToManyField(Product, related_name="tags", db_table="tagged")

    class Meta:
        db_table = "tags"
        managed = False
