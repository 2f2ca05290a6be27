"""Runs the migrations on the connection that `search.store.session` passes in."""

from alembic import context

from search.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, render_as_batch=True
)
context.run_migrations()
