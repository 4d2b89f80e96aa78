# What building and running needs, and how to get it. Sourced by the scripts
# beside it: `needs build` before a build, `needs test` before the tests, `needs
# launchers` before those with MPICH and Slurm.
#
# Looks at what is there, by function and not by package, so that a site's own
# MPI, BLAS or Rust is left alone; installs the rest with apt-get, as root or
# through sudo, and says so before. SKT_HPL_INSTALL=no: only says what is missing.

RUST_NEEDED=1.89

# MPI refuses to start as root unless told that it is meant.
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# A cargo that rustup installed is not on the path of a shell without a profile.
[ -d "${CARGO_HOME:-$HOME/.cargo}/bin" ] && PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

have() { command -v "$1" >/dev/null 2>&1; }

have_blas() {
    [ -n "${SKT_HPL_BLAS:-}" ] || { have pkg-config && pkg-config --exists openblas; }
}

# bindgen, which the MPI binding runs, loads libclang when it runs.
have_libclang() {
    [ -n "${LIBCLANG_PATH:-}" ] || have llvm-config ||
        ls /usr/lib/llvm-*/lib/libclang*.so* /usr/lib/*/libclang-*.so* /usr/lib*/libclang.so* >/dev/null 2>&1
}

have_rust() {
    local version
    version=$(rustc --version 2>/dev/null | cut -d' ' -f2 | cut -d- -f1) && have cargo &&
        [ "$(printf '%s\n' "$RUST_NEEDED" "$version" | sort -V | head -n 1)" = "$RUST_NEEDED" ]
}

missing_packages() {
    have cc || echo gcc
    [ -e /usr/include/stdlib.h ] || echo libc6-dev
    have pkg-config || echo pkg-config
    have mpirun || echo openmpi-bin
    have mpicc || echo libopenmpi-dev
    have_blas || echo libopenblas-dev
    have_libclang || echo libclang-dev
    if [ "$1" != build ]; then
        have python3 || echo python3
        # The cluster made of namespaces.
        have ip || echo iproute2
    fi
    if [ "$1" = launchers ]; then
        have mpiexec.hydra || echo mpich
        have mpicc.mpich || echo libmpich-dev
        have slurmctld || echo slurmctld
        have slurmd || echo slurmd
        have salloc || echo slurm-client
    fi
    have_rust || { have curl || echo curl; [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates; }
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

install_packages() {
    if [ "${SKT_HPL_INSTALL:-}" = no ]; then
        echo "missing: $* (SKT_HPL_INSTALL=no: not installed)" >&2
        return 1
    fi
    if ! have apt-get; then
        echo "missing, by their Debian names: $*" >&2
        echo "there is no apt-get here; install these with the package manager of this system" >&2
        return 1
    fi
    if [ "$(id -u)" != 0 ] && ! have sudo; then
        echo "missing: $*; become root and run: apt-get install --no-install-recommends $*" >&2
        return 1
    fi
    echo "== installs with apt-get: $*"
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}

install_rust() {
    if [ "${SKT_HPL_INSTALL:-}" = no ]; then
        echo "missing: Rust $RUST_NEEDED or newer (SKT_HPL_INSTALL=no: not installed)" >&2
        return 1
    fi
    if have rustup; then
        echo "== installs the stable Rust toolchain with rustup ($RUST_NEEDED or newer is needed)"
        rustup toolchain install stable --profile minimal --component rustfmt --component clippy
        export RUSTUP_TOOLCHAIN=stable
        return
    fi
    echo "== installs Rust with the installer of https://rustup.rs into ${CARGO_HOME:-$HOME/.cargo} ($RUST_NEEDED or newer is needed)"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
        sh -s -- -y --profile minimal --component rustfmt --component clippy --no-modify-path
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
}

# needs build|test|launchers
needs() {
    local packages
    packages=$(missing_packages "$1")
    if [ -z "$packages" ] && have_rust; then
        echo "== nothing to install: compiler, MPI, BLAS, libclang and Rust are here"
    fi
    # One package a line, no spaces within.
    # shellcheck disable=SC2086
    [ -z "$packages" ] || install_packages $packages
    have_rust || install_rust
    if [ "$1" != build ]; then
        cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 || {
            echo "== installs rustfmt and clippy with rustup"
            rustup component add rustfmt clippy
        }
    fi
}
