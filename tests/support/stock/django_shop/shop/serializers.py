"""A serializer for projects that want no pickles in Redis."""

import json

from django.core.serializers.json import DjangoJSONEncoder


class Json:
    def dumps(self, value):
        return json.dumps(value, cls=DjangoJSONEncoder)

    def loads(self, data):
        return json.loads(data)
