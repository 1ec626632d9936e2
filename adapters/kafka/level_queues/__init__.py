"""Messages that wait in Kafka: one topic for each level (`queues`), one consumer for all of them (`source`), and the log of ids beside them (`id_log`)."""
