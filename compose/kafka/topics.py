"""What the team had before there was a bridge: a topic."""

import os

from kafka import KafkaAdminClient

admin = KafkaAdminClient(bootstrap_servers=os.environ["KAFKA_BOOTSTRAP_SERVERS"])
if "orders" not in admin.list_topics():
    admin.create_topics({"orders": {"num_partitions": 3, "replication_factor": 1}})
    admin.wait_for_topics(["orders"])
admin.close()
