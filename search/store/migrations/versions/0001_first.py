"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "searches",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String, nullable=False, unique=True),
        sa.Column("space", sa.JSON, nullable=False),
        sa.Column("space_digest", sa.String, nullable=False),
        sa.Column("protocol", sa.JSON, nullable=False),
        sa.Column("protocol_digest", sa.String, nullable=False),
        sa.Column("config", sa.JSON, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("plait_version", sa.String, nullable=False),
        sa.Column("driver", sa.String),
        sa.Column("driver_expires", sa.Double),
    )
    op.create_table(
        "evaluations",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("search_id", sa.Integer, sa.ForeignKey("searches.id", ondelete="CASCADE"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("design", sa.String, nullable=False),
        sa.Column("design_digest", sa.String, nullable=False, index=True),
        sa.Column("protocol_digest", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("lease_expires", sa.Double),
        sa.Column("origin", sa.String, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("started", sa.Double),
        sa.Column("finished", sa.Double),
        sa.Column("worker", sa.String),
        sa.Column("reason", sa.String),
        sa.Column("traceback", sa.String),
        *(
            sa.Column(name, sa.Double)
            for name in (
                "recall",
                "recall_low",
                "recall_high",
                "lm_bits_per_byte",
                "memory_bytes",
                "parameters",
                "seconds",
            )
        ),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("details", sa.JSON, nullable=False),
        sa.UniqueConstraint("search_id", "design_digest", "protocol_digest"),
    )
    op.create_index("ix_evaluations_search_id_state", "evaluations", ["search_id", "state"])
    op.create_table(
        "rungs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("evaluation_id", sa.Integer, sa.ForeignKey("evaluations.id", ondelete="CASCADE"), nullable=False),
        sa.Column("rung", sa.Integer, nullable=False),
        sa.Column("budget", sa.Double, nullable=False),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("recorded", sa.Double, nullable=False),
        sa.UniqueConstraint("evaluation_id", "rung"),
    )


def downgrade() -> None:
    for table in ("rungs", "evaluations", "searches"):
        op.drop_table(table)
