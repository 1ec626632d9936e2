"""An ordinary producer: an order every other second. One header delays every second order."""

import itertools
import json
import os
import time

from kafka import KafkaProducer

producer = KafkaProducer(bootstrap_servers=os.environ["KAFKA_BOOTSTRAP_SERVERS"])
for number in itertools.count(1):
    headers = [("x-delay", b"5s")] if number % 2 == 0 else []
    body = json.dumps({"order": f"kafka-{number}", "sent": time.time()})
    producer.send("orders", body.encode(), key=b"customer-7", headers=headers).get(30)
    print(f"sent     order kafka-{number} {headers or ''}")
    time.sleep(2)
