"""A typical Django project: a model, a view, and Django's own RedisCache. It knows nothing of cacheupdater."""
