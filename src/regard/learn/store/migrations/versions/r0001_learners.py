"""Learners, their lessons and exercises, and the log."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None


def _of_learner(name: str, *columns: sa.Column) -> None:
    # Written out here and in later migrations: tables of today must not change what a migration once did.
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
    op.create_table(
        "learners",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("issuer", sa.String(255), nullable=False),
        sa.Column("subject", sa.String(255), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_learners"),
        sa.UniqueConstraint("issuer", "subject", name="uq_learners_issuer"),
    )
    _of_learner(
        "lessons",
        sa.Column("lesson", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("state", sa.String(8), nullable=False),
    )
    _of_learner(
        "exercises",
        sa.Column("exercise", sa.String(200), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("passed", sa.Boolean, nullable=False),
        sa.Column("hints", sa.Integer, nullable=False),
    )
    _of_learner(
        "log",
        sa.Column("id", sa.String(200), nullable=False),
        sa.Column("kind", sa.String(200), nullable=False),
        sa.Column("about", sa.String(200), nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
    )


def downgrade() -> None:
    """Take them away."""
    for name in ("log", "exercises", "lessons", "learners"):
        op.drop_table(name)
