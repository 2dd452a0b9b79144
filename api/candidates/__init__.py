"""Candidates and frontiers: pages, exports, raw samples."""
