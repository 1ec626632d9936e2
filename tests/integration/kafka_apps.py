"""Producers that know nothing of delaybridge: scripts as somebody might have them. Arguments: bootstrap servers, topic, number of messages.

Message n has key `k<n>`; each odd one says in a header that it is to be late.
"""

from __future__ import annotations

DELAY = 1500

KAFKA_PYTHON = f"""
import sys
from kafka import KafkaProducer

url, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
producer = KafkaProducer(bootstrap_servers=url, key_serializer=str.encode, value_serializer=str.encode)
for n in range(count):
    producer.send(topic, f"m{{n}}", f"k{{n}}", headers=[("app", b"1")] + ([("x-delay", b"{DELAY}")] if n % 2 else []))
producer.flush()
"""

CONFLUENT_KAFKA = f"""
import sys
from confluent_kafka import Producer

url, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
producer = Producer({{"bootstrap.servers": url}})
for n in range(count):
    producer.produce(topic, f"m{{n}}", f"k{{n}}", headers={{"app": "1"}} | ({{"x-delay": "{DELAY}ms"}} if n % 2 else {{}}))
assert producer.flush(30) == 0
"""

AIOKAFKA = f"""
import asyncio, sys
from aiokafka import AIOKafkaProducer

async def main(url, topic, count):
    async with AIOKafkaProducer(bootstrap_servers=url) as producer:
        for n in range(count):
            late = [("AMQ_SCHEDULED_DELAY", ({DELAY}).to_bytes(8, "big"))] if n % 2 else []
            await producer.send_and_wait(topic, b"m%d" % n, key=b"k%d" % n, headers=[("app", b"1"), *late])

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""

APPS = {"kafka-python": KAFKA_PYTHON, "confluent-kafka": CONFLUENT_KAFKA, "aiokafka": AIOKAFKA}
