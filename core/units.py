"""Units of sizes. Memory and files are shown in MiB and GiB, whatever a field's name says (`memory_mb`)."""

from __future__ import annotations

MIB = 1 << 20
GIB = 1 << 30
