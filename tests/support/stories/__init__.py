"""Helpers with plain verbs, in which tests are written as short stories."""
