"""A Django project as many are written: a model, a view, and Django's own RedisCache. Of cacheupdater it knows nothing."""
