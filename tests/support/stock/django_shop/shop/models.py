from django.db import models


class Product(models.Model):
    name = models.CharField(max_length=100)
    price = models.DecimalField(max_digits=10, decimal_places=2)
    discount = models.DecimalField(max_digits=10, decimal_places=2, null=True)
    in_stock = models.BooleanField()
    added = models.DateField()
    updated_at = models.DateTimeField()
    note = models.TextField(null=True)  # noqa: DJ001  NULL is wanted

    class Meta:
        db_table = "products"

    def __str__(self):
        return self.name
