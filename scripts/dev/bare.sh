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

# What users have at a login besides HOME, USER and a path: variables, and the folder in theirs. The
# script sets it.
login=() login_folder=

# as ROOT USER COMMAND: as at a login of that user, with LENT/bin first in the path.
as() {
    local home=/home/$2 path=${lent[1]}/bin:/usr/local/bin:/usr/bin:/bin words
    [ "$2" != root ] || home=/root path=$path:/usr/local/sbin:/usr/sbin:/sbin
    mapfile -t words < <(network)
    inside "$1" setpriv --reuid "$2" --regid "$2" --init-groups env -i -C "$home$login_folder" HOME="$home" \
        USER="$2" PATH="$path" LANG=C.UTF-8 "${login[@]}" "${words[@]}" bash -euc "$3"
}

# Runs `one NAME ROOT` for each name, in a shell of its own that ends at the first failure; prints what
# has come of them, and ends the script: each NAME...
each() {
    local name begin status result failed=0
    for name; do
        echo "=== $name"
        begin=$SECONDS
        # `one || ...` would make it go on after a failure.
        set +e
        (set -e && one "$name" "$work/$name.system")
        status=$?
        set -e
        if [ $status = 0 ]; then result=passed; else result="FAILED ($status)" failed=1; fi
        echo "=== $name: $result, $((SECONDS - begin)) s" | tee -a "$work/summary"
        rm -rf --one-file-system "$work/$name.system"
    done
    echo
    cat "$work/summary"
    [ ! -e "$work/table" ] || cat "$work/table"
    leave "$failed"
}
