"""The database, the only truth about a search: `writer` and `reader` open it, `queries` reads, `recorder` writes."""

from search.store.session import reader, writer

__all__ = ["reader", "writer"]
