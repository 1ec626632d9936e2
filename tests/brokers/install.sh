#!/bin/sh
# Puts on this machine those brokers that no URL names, Docker cannot run, and are not there: RabbitMQ from Debian's package; Kafka and ActiveMQ from
# Maven Central into the user's cache, with Java and Maven from Debian where they are missing. And a Chromium, which looks at the audit's report.
# The argument is the Python that runs the tests.
# Where it cannot, it says so: the tests then skip what needs that broker, or fail where DELAYBRIDGE_TEST_REQUIRE names it.
set -eu
cd "$(dirname "$0")/.."

packages() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "This needs root and apt-get: install $* yourself." >&2
        return 1
    fi
    apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}

java_17() {
    java -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' || packages openjdk-17-jre-headless || packages default-jre-headless
}

maven() {
    command -v mvn >/dev/null || packages maven
}

browser() {
    [ -z "${DELAYBRIDGE_TEST_CHROMIUM:-}" ] || return 0
    for name in chromium chromium-browser google-chrome; do ! command -v $name >/dev/null || return 0; done
    echo "Installing chromium for the tests, which look at the audit's report with it ..."
    packages --no-install-recommends chromium fonts-liberation
}

install() {
    case $1 in
    rabbitmq) packages rabbitmq-server ;;
    *) java_17 && maven && "$python" -m "brokers.$1" --install ;;
    esac
}

python=$1
for broker in $("$python" -m brokers missing); do
    echo "Installing $broker for the tests, which start private nodes of it ..."
    install "$broker" || echo "No $broker here: the tests that need one are skipped. Install it, start Docker, or set DELAYBRIDGE_TEST_$(echo "$broker" | tr a-z A-Z)_URL." >&2
done
browser || echo "No Chromium here: the tests that need one are skipped. Install it, or set DELAYBRIDGE_TEST_CHROMIUM." >&2
