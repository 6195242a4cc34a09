"""Run by alembic: the migrations, in the transaction of whoever asked for them."""

from __future__ import annotations

from alembic import context

from regard.learn.store.tables import METADATA


def run() -> None:
    """Bring the database to the revision that is asked for."""
    # The transaction is there already, and ends outside: alembic begins none of its own.
    context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
    context.run_migrations()


# Whoever else imports this asks for no migration: there is a configuration only while alembic runs it.
if hasattr(context, "config"):
    run()
