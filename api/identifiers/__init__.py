"""Identifiers by a part of them."""
