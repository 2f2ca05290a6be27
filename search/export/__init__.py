"""Designs as configurations that train at full size elsewhere."""

from search.export.fla import export, read

__all__ = ["export", "read"]
