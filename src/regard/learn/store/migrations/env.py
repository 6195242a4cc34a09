"""Run by alembic: the migrations, in the transaction of whoever asked for them."""

from __future__ import annotations

from alembic import context

from regard.learn.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    # SQLite can change tables within a transaction, which alembic does not expect of it.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
