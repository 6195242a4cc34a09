"""Quiz cards, bookmarks and notes."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0002", "0001"


def _of_learner(name: str, *columns: sa.Column) -> None:
    op.create_table(
        name,
        sa.Column("learner_id", sa.Integer, nullable=False),
        *columns,
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("learner_id", columns[0].name, name=f"pk_{name}"),
        sa.ForeignKeyConstraint(
            ["learner_id"], ["learners.id"], name=f"fk_{name}_learner_id_learners", ondelete="CASCADE"
        ),
    )


def upgrade() -> None:
    """Make the tables."""
    _of_learner(
        "cards",
        sa.Column("card_id", sa.String(200), nullable=False),
        sa.Column("state", sa.JSON, nullable=False),
        sa.Column("due", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("ix_cards_due", "cards", ["due"])
    _of_learner(
        "bookmarks",
        sa.Column("id", sa.String(200), nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("removed", sa.Boolean, nullable=False),
    )
    _of_learner(
        "notes",
        sa.Column("about", sa.String(200), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Take them away."""
    for name in ("notes", "bookmarks", "cards"):
        op.drop_table(name)
