#!/bin/sh
# Makes the base image attnmatrix-base:bookworm with debootstrap, for machines that reach no image registry; with --cuda
# attnmatrix-base:bookworm-cuda, which has a compiler too. Does nothing where the image is there already; --force makes it
# anew. DEBIAN_MIRROR overrides the mirror, which is otherwise the first that this machine's own apt sources name for
# Debian.
set -eu

tag=attnmatrix-base:bookworm
suite=bookworm
# libnuma1: vLLM's compiled CPU code is linked against it.
packages=python3,python3-venv,ca-certificates,libnuma1
force=

fail() {
    printf 'make-base.sh: %s\n' "$1" >&2
    exit 1
}

mirror_of_this_machine() {
    # One-line format: deb [options] URI suite components; deb822 format: a line "URIs: URI...". Only Debian's own
    # archives end in /debian: others, such as a vendor's repository, have no base system in them.
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
        sed -nE 's/^deb +(\[[^]]*\] +)?([^ ]+) .*/\2/p; s/^URIs: *([^ ]+).*/\1/p' |
        sed -nE '/^(https?|file):.*\/debian\/?$/p' | head -n 1
}

for argument in "$@"; do
    case "$argument" in
    --force) force=1 ;;
    --cuda)
        tag=$tag-cuda
        packages=$packages,g++,python3-dev # what FlashInfer and Triton compile with, when a cell runs
        ;;
    *) fail "unknown argument '$argument': there are --cuda and --force" ;;
    esac
done

command -v docker >/dev/null || fail "there is no docker command: install Docker (on Debian: apt-get install docker.io)"
docker version >/dev/null 2>&1 || fail "no Docker daemon answers: start it, or ask 'runner doctor' what is wrong"
if [ -z "$force" ] && docker image inspect "$tag" >/dev/null 2>&1; then
    echo "$tag is there already"
    exit 0
fi
[ "$(id -u)" -eq 0 ] || fail "debootstrap needs root: run it with sudo"
command -v debootstrap >/dev/null || fail "there is no debootstrap: apt-get install debootstrap"
mirror=${DEBIAN_MIRROR:-$(mirror_of_this_machine)}
[ -n "$mirror" ] || fail "apt's sources name no Debian archive: set DEBIAN_MIRROR to one"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
echo "debootstrap $suite from $mirror"
debootstrap --variant=minbase --include="$packages" "$suite" "$folder/root" "$mirror" >"$folder/log" 2>&1 || {
    tail -n 15 "$folder/log" >&2
    fail "debootstrap failed: is $mirror reachable from here, and does $folder allow devices and programs?"
}
# /dev is the container's own; the rest is cache, and where it came from.
tar -C "$folder/root" -c --exclude=./dev/\* --exclude=./var/cache/\* --exclude=./var/lib/apt/lists/\* \
    --exclude=./var/log/\* --exclude=./usr/share/doc/\* --exclude=./usr/share/locale/\* . |
    docker import --change 'ENV LANG=C.UTF-8' --message "debootstrap $suite" - "$tag" >/dev/null
docker image inspect "$tag" >/dev/null 2>&1 || fail "docker import made no image: is the disk full?"
echo "$tag is made"
