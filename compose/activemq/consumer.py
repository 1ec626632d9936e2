"""An ordinary consumer: says which order came, and when."""

import json
import os
import threading
import time

import stomp


class Orders(stomp.ConnectionListener):
    """Called by the client's own thread."""

    def on_message(self, frame: stomp.utils.Frame) -> None:
        """One order."""
        order = json.loads(frame.body)
        print(f"received order {order['order']} {time.time() - order['sent']:.3f} s after it was sent")

    def on_disconnected(self) -> None:
        """The stack starts this program again."""
        gone.set()


gone = threading.Event()
connection = stomp.Connection12([(os.environ["ACTIVEMQ_HOST"], 61613)])
connection.set_listener("orders", Orders())
connection.connect(wait=True)
connection.subscribe("/queue/orders", id="1")
gone.wait()
raise SystemExit("the broker is gone")
