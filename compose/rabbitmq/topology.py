"""What the team had before there was a bridge: an exchange, a queue, a binding."""

import os

import pika
import pika.exceptions

connection = pika.BlockingConnection(pika.URLParameters(os.environ["RABBITMQ_URL"]))
try:
    connection.channel().exchange_declare("orders", passive=True)
except pika.exceptions.ChannelClosedByBroker:
    channel = connection.channel()
    channel.exchange_declare("orders", "topic", durable=True)
    channel.queue_declare("orders", durable=True)
    channel.queue_bind("orders", "orders", "order.*")
connection.close()
