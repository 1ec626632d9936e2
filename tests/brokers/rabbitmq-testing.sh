#!/bin/sh
# The RabbitMQ of Debian's next release (4.3.6 in November 2026), for a machine whose own is older: in a directory of the user's cache, with all that it
# needs. As root. Prints the path of its server, by which the tests start private nodes of it:
#
#     DELAYBRIDGE_TEST_RABBITMQ_SERVER="$(tests/brokers/rabbitmq-testing.sh)" make test ARGS="tests/contract tests/integration tests/crash -k rabbitmq"
set -eu

place="${XDG_CACHE_HOME:-$HOME/.cache}/delaybridge/brokers/rabbitmq-testing"

# A program within the directory, in a mount namespace of its own: nothing stays mounted, and the process keeps its number.
program() {
    cat >"$unfinished/$1" <<END
#!/bin/sh
exec unshare --mount sh -ec '
    for part in tmp proc dev; do mount --rbind /\$part "$place/debian/\$part"; done
    exec chroot "$place/debian" /usr/lib/rabbitmq/bin/$1 "\$@"
' $1 "\$@"
END
    chmod +x "$unfinished/$1"
}

if [ ! -d "$place" ]; then
    echo "Installing RabbitMQ from Debian testing ..." >&2
    command -v debootstrap >/dev/null || { apt-get update -qq && apt-get install -y -qq debootstrap; } >&2
    unfinished="$place.unfinished"
    rm -rf "$unfinished"
    mkdir -p "$unfinished"
    debootstrap --variant=minbase --include=rabbitmq-server testing "$unfinished/debian" http://deb.debian.org/debian >&2
    cp /etc/hosts "$unfinished/debian/etc/hosts"
    program rabbitmq-server
    program rabbitmqctl
    mv "$unfinished" "$place"
fi
echo "$place/rabbitmq-server"
