"""Where Alembic begins. `queuety.store.migrate` hands over an open transaction and commits it.

No alembic.ini is read.
"""

from alembic import context

given = context.config.attributes
context.configure(connection=given["connection"], version_table=given["version_table"])
with context.begin_transaction():
    context.run_migrations()
