"""How long a search had slots, and how long they were busy: counted from now on."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

COLUMNS = ("slot_seconds", "busy_seconds")


def upgrade() -> None:
    for name in COLUMNS:
        op.add_column("searches", sa.Column(name, sa.Double, nullable=False, server_default="0"))


def downgrade() -> None:
    for name in COLUMNS:
        op.drop_column("searches", name)
