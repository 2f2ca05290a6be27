"""The database, the only truth about a search: `writer` and `reader` open it, `queries` reads, `recorder` writes;
`shown` is its URL without the password."""

from search.store.session import reader, shown, writer

__all__ = ["reader", "shown", "writer"]
