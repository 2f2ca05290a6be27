"""The rung at which an audited evaluation would have stopped; limits of parameters and FLOPs; the rule of stopping."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

LIMITS = {"parameter_limit": 0, "flops_limit": 0}
HALVING = {"reduction": 2.0, "grace": 0.3, "rivals": 4, "audit": 0.0}
"""How searches stopped before."""


def upgrade() -> None:
    op.add_column("evaluations", sa.Column("audit_rung", sa.Integer))
    _configs(lambda config: {**config, "deployment": {**config.get("deployment", {}), **LIMITS}, "halving": HALVING})


def downgrade() -> None:
    op.drop_column("evaluations", "audit_rung")

    def without(config):
        kept = {key: value for key, value in config["deployment"].items() if key not in LIMITS}
        return {key: value for key, value in config.items() if key != "halving"} | {"deployment": kept}

    _configs(without)


def _configs(changed) -> None:
    connection = op.get_bind()
    searches = sa.table("searches", sa.column("id", sa.Integer), sa.column("config", sa.JSON))
    for row in connection.execute(sa.select(searches.c.id, searches.c.config)).all():
        config = json.loads(row.config) if isinstance(row.config, str) else row.config
        connection.execute(sa.update(searches).where(searches.c.id == row.id).values(config=changed(config)))
