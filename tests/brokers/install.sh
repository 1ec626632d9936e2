#!/bin/sh
# Puts RabbitMQ on this machine for the tests, unless a URL names one, it is installed, or Docker can run it.
# Without root or apt-get it only says so: the tests then skip what needs it, or fail where DELAYBRIDGE_TEST_REQUIRE names it.
set -eu

[ -n "${DELAYBRIDGE_TEST_RABBITMQ_URL:-}" ] && exit 0
[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] && exit 0
docker info >/dev/null 2>&1 && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing rabbitmq-server for the tests, which start private nodes of it ..."
    apt-get update -qq
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq rabbitmq-server >/dev/null
else
    echo "No RabbitMQ here: the tests that need one are skipped. Install rabbitmq-server, start Docker, or set DELAYBRIDGE_TEST_RABBITMQ_URL." >&2
fi
