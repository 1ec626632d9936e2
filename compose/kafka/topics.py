"""What the team had before there was a bridge, the topic `orders`; and the one for its delayed messages."""

import os

from kafka import KafkaAdminClient

admin = KafkaAdminClient(bootstrap_servers=os.environ["KAFKA_BOOTSTRAP_SERVERS"])
there = admin.list_topics()
wanted = {name: {"num_partitions": 3, "replication_factor": 1} for name in ("orders", "orders.delayed") if name not in there}
if wanted:
    admin.create_topics(wanted)
    admin.wait_for_topics(list(wanted))
admin.close()
