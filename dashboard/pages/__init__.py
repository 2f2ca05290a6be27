"""One module a page, each with a `show` that draws it."""
