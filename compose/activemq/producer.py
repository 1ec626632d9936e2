"""An ordinary producer: an order every other second. One header, ActiveMQ's own, delays every second order."""

import itertools
import json
import os
import time

import stomp

connection = stomp.Connection12([(os.environ["ACTIVEMQ_HOST"], 61613)])
connection.connect(wait=True)
for number in itertools.count(1):
    headers = {"AMQ_SCHEDULED_DELAY": "5000"} if number % 2 == 0 else {}
    body = json.dumps({"order": f"activemq-{number}", "sent": time.time()})
    connection.send("/queue/orders", body, headers={"persistent": "true", **headers})
    print(f"sent     order activemq-{number} {headers or ''}")
    time.sleep(2)
