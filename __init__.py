"""delaybridge: delayed, repeated and cron messages for Kafka, RabbitMQ and ActiveMQ, beside the broker you already run."""
