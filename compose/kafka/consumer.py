"""An ordinary consumer: says which order came, and when."""

import json
import os
import time

from kafka import KafkaConsumer

consumer = KafkaConsumer("orders", group_id="bills", auto_offset_reset="earliest", bootstrap_servers=os.environ["KAFKA_BOOTSTRAP_SERVERS"])
for record in consumer:
    order = json.loads(record.value)
    print(f"received order {order['order']} {time.time() - order['sent']:.3f} s after it was sent")
