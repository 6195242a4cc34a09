"""Classes and who is in them."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0003", "0002"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "classes",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("learner_id", sa.Integer, nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("code", sa.String(16), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_classes"),
        sa.ForeignKeyConstraint(
            ["learner_id"], ["learners.id"], name="fk_classes_learner_id_learners", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("code", name="uq_classes_code"),
    )
    op.create_index("ix_classes_learner_id", "classes", ["learner_id"])
    op.create_table(
        "members",
        sa.Column("class_id", sa.String(32), nullable=False),
        sa.Column("learner_id", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("class_id", "learner_id", name="pk_members"),
        sa.ForeignKeyConstraint(
            ["class_id"], ["classes.id"], name="fk_members_class_id_classes", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["learner_id"], ["learners.id"], name="fk_members_learner_id_learners", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("class_id", "number", name="uq_members_class_id"),
    )
    op.create_index("ix_members_learner_id", "members", ["learner_id"])


def downgrade() -> None:
    """Take them away."""
    for name in ("members", "classes"):
        op.drop_table(name)
