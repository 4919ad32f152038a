#!/bin/sh
# make image, make compose-up, make compose-cluster-up and so on: with docker or podman, whichever works here.
#
#   containers.sh image                      build the image, and print its size
#   containers.sh up [SERVICE...]            start the services of compose.yaml, or some of them
#   containers.sh down [-v]                  stop and remove them; -v: their logs and metrics too
#   containers.sh cluster-up [SERVICE...]    the same of compose.cluster.yaml
#   containers.sh cluster-down [-v]
#
# From the environment: ENGINE (docker or podman), TIDELOG_IMAGE (the name and tag), VERSION (a second tag: the
# version of the sources, or that and a suffix, as in 1.2.3-rc1), PYTHON_IMAGE (the base image), BUILD_OPTIONS (for the
# engine's build), COMPOSE_PROJECT_NAME, and those of compose.yaml.
set -eu
cd "$(dirname "$0")/.."
image=${TIDELOG_IMAGE:-tidelog:latest}
grace_s=45

fail() {
    echo "$*" >&2
    exit 1
}

runs() { # a docker client without its engine supports only --version
    "$1" info >/dev/null 2>&1
}

commit() { # nothing where git is missing, or the sources are no clone
    found=$(git rev-parse HEAD 2>/dev/null) || return 0
    [ -z "$(git status --porcelain 2>/dev/null)" ] || found=$found-dirty
    echo "$found"
}

engine() {
    for found in ${ENGINE:-docker podman}; do
        if runs "$found"; then
            echo "$found"
            return
        fi
    done
    fail "neither docker nor podman runs here: install one, or start its service (on Debian: apt install podman)"
}

compose() {
    if [ "$engine" = docker ]; then
        docker compose version >/dev/null 2>&1 || fail "docker has no compose plugin: install docker-compose-plugin"
        docker compose -f "docker/$file" "$@"
    elif command -v podman-compose >/dev/null; then
        podman-compose -p "$COMPOSE_PROJECT_NAME" -f "docker/$file" "$@"
    else
        fail "podman needs podman-compose for this (on Debian: apt install podman-compose)"
    fi
}

command=${1:-}
[ $# = 0 ] || shift
case $command in
cluster-*) file=compose.cluster.yaml project=tidelog-cluster brokers='broker-1 broker-2 broker-3' ;;
*) file=compose.yaml project=tidelog brokers=broker ;;
esac
export COMPOSE_PROJECT_NAME="${COMPOSE_PROJECT_NAME:-$project}"
engine=$(engine)
case $command in
image)
    # Images in OCI's format have no health check; podman makes those unless told otherwise.
    format=
    [ "$engine" = docker ] || format='--format docker'
    source=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' tidelog/__init__.py)
    version=${VERSION:-$source}
    case $version in
    "$source" | "$source"-*) ;;
    *) fail "VERSION=$version: these sources are $source" ;;
    esac
    name=$(echo "$image" | sed 's/:[^:/]*$//')
    # shellcheck disable=SC2086 - options are words
    "$engine" build $format ${BUILD_OPTIONS:-} ${PYTHON_IMAGE:+--build-arg PYTHON_IMAGE="$PYTHON_IMAGE"} \
        --build-arg VERSION="$version" --build-arg COMMIT="$(commit)" \
        -f docker/Dockerfile -t "$image" ${VERSION:+-t "$name:$VERSION"} .
    "$engine" image inspect --format '{{.Size}}' "$image" |
        awk -v image="$image" '{ printf "%s: %.0f MB\n", image, $1 / 1e6 }'
    ;;
up | cluster-up) compose up -d "$@" ;;
down | cluster-down)
    # Podman-compose 1.0 does not know stop_grace_period: it kills after 10 s, or less.
    # shellcheck disable=SC2086 - services are words
    [ "$engine" = docker ] || compose stop --timeout "$grace_s" $brokers
    compose down "$@"
    ;;
*) fail "containers.sh: expected image, up, down, cluster-up or cluster-down" ;;
esac
