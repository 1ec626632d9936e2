"""Reading the inputs: files and topics, with what bridges, observers and Kafka say of how complete they are."""
