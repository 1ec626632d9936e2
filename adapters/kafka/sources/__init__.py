"""Reading topics: one consumer and its thread (`consumer`, `connection`, `poller`), what may be committed (`progress`, `commits`), the source of a route."""
