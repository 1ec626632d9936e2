"""An ordinary consumer: says which order came, and when."""

import json
import os
import time

import pika

channel = pika.BlockingConnection(pika.URLParameters(os.environ["RABBITMQ_URL"])).channel()
for method, _, body in channel.consume("orders"):
    order = json.loads(body)
    print(f"received order {order['order']} {time.time() - order['sent']:.3f} s after it was sent")
    channel.basic_ack(method.delivery_tag)
