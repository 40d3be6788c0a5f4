"""Runs the FastAPI application `shop` with its lifespan, but without a server: a path a line goes in, an answer a line comes out."""

import json
import sys

import shop
from fastapi.testclient import TestClient

with TestClient(shop.app) as client:
    for line in sys.stdin:
        answer = client.get(line.strip())
        print(json.dumps(answer.json() if answer.is_success else answer.status_code), flush=True)
