# Bare Debian systems, for scripts that source this file: folders that debootstrap makes under
# ${TMPDIR:-/var/tmp}, whose commands run in namespaces of their own. All is removed when the script
# ends, for whatever reason. Needs root. SKT_HPL_MIRROR names another mirror of Debian.
#
# shellcheck shell=bash

mirror=${SKT_HPL_MIRROR:-http://deb.debian.org/debian}

if [ "$(id -u)" != 0 ]; then
    echo "${0##*/} needs root, for debootstrap and namespaces" >&2
    exit 2
fi
# shellcheck source=scripts/needs.sh
. scripts/needs.sh
needs fresh

# Removes the folder when the last process that has it open is gone, also if this
# script is killed.
work=$(mktemp -d "${TMPDIR:-/var/tmp}/skt-hpl-bare.XXXXXX")
# shellcheck disable=SC2016
exec {alive}> >(exec setsid sh -c 'trap "" HUP INT TERM; cat >/dev/null; rm -rf --one-file-system "$1"' sh "$work")
remover=$!
chmod 755 "$work"

# Waits until all is removed, and ends the script: leave STATUS
leave() {
    exec {alive}>&-
    wait "$remover"
    exit "$1"
}

# FROM TO: a folder of this machine that the systems see, read-only, in TO. The script sets it.
lent=()

# In namespaces of its own, with the folder ROOT for its root: inside ROOT COMMAND...
# What is mounted, runs or lies in shared memory there ends with the command.
inside() {
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child --ipc --uts sh -euc '
        mount --bind "$1" "$1"
        cd "$1"
        mount -t proc proc proc
        mount --rbind /sys sys
        mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
        mkdir -p dev/shm ".$3"
        mount -t tmpfs -o mode=1777 tmpfs dev/shm
        mount --bind -o ro "$2" ".$3"
        pivot_root . .
        umount -l .
        cd /
        shift 3
        exec "$@"' sh "$1" "${lent[@]}" "${@:2}" </dev/null
}

# What this machine needs to reach mirrors and registries.
network() { env | grep -iE '^((https?|ftp|all|no)_proxy|CARGO_(NET|REGISTRIES|REGISTRY|SOURCE)_[A-Z_]*)=' || true; }

# The bare system of a release, made once: base RELEASE
base() {
    local root=$work/$1
    [ ! -d "$root" ] || return 0
    debootstrap --variant=minbase "$1" "$root.new" "$mirror" >"$root.log" 2>&1 || { cat "$root.log" && return 1; }
    cp -L /etc/resolv.conf /etc/hosts "$root.new/etc/"
    # Of apt, the proxies; of the certificates, what Debian's package takes up
    # when it is installed.
    apt-config dump 2>/dev/null | grep -i '^Acquire::.*Proxy' >"$root.new/etc/apt/apt.conf.d/99host" || true
    mkdir -p "$root.new/usr/local/share/ca-certificates"
    cp -L "${CARGO_HTTP_CAINFO:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}" \
        "$root.new/usr/local/share/ca-certificates/host.crt"
    mv "$root.new" "$root"
}
