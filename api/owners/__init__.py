"""Owners and their bounds."""
