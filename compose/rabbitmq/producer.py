"""An ordinary producer: an order every other second. One header delays every second order."""

import itertools
import json
import os
import time

import pika

connection = pika.BlockingConnection(pika.URLParameters(os.environ["RABBITMQ_URL"]))
channel = connection.channel()
for number in itertools.count(1):
    headers = {"x-delay": 5000} if number % 2 == 0 else {}
    body = json.dumps({"order": f"rabbitmq-{number}", "sent": time.time()})
    channel.basic_publish("orders", "order.new", body, pika.BasicProperties(headers=headers, delivery_mode=2))
    print(f"sent     order rabbitmq-{number} {headers or ''}")
    connection.sleep(2)
