"""Candidates' models for download."""
