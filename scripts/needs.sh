# What building and running needs, and how to get it. The scripts beside it source this file and
# call `needs build` before a build, `needs test` before the tests, `needs mpich` before those with
# MPICH, `needs launchers` before those with MPICH and Slurm, `needs valgrind` before
# test-clients-memory, `needs fresh` before test-fresh, and `needs package` before package.
#
# The tests need what a build needs. Tests that use more are skipped where that is missing, so
# `needs test` only names it, unless it may install it.
#
# It tests what is there instead of asking for packages, so that a site's own MPI or Rust is
# left alone. It names what is missing. With SKT_HPL_INSTALL=yes, which is scripts/quickstart's
# default, it installs that with apt-get, as root or through sudo, and says so before.
# shellcheck shell=bash

# The oldest Rust that builds this, which Cargo.toml names.
RUST_NEEDED=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$(dirname "${BASH_SOURCE[0]}")/../Cargo.toml")

# MPI refuses to start as root unless told that it is meant.
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# A cargo that rustup installed is not on the path of a shell without a profile,
# and the daemons of Slurm are not on that of a plain user.
rust_folder=${CARGO_HOME:-$HOME/.cargo}/bin
PATH="$PATH:$rust_folder:/usr/sbin:/sbin"

have() { command -v "$1" >/dev/null 2>&1; }

# links TEXT COMPILER [FLAG...]: whether the C program is compiled and linked so.
links() {
    local folder status=0
    folder=$(mktemp -d)
    "$2" -x c - -o "$folder/program" "${@:3}" <<<"$1" >/dev/null 2>&1 || status=1
    rm -r "$folder"
    return $status
}

have_cc() { links $'#include <stdlib.h>\nint main(void) { return abs(0); }' cc; }

# mpi_builds [MPICC]: whether the compiler of MPI is there, and works if the C
# compiler does.
mpi_builds() {
    have "$1" || return
    ! have_cc || links $'#include <mpi.h>\nint main(void) { return MPI_Init(0, 0); }' "$1"
}

# Which MPI the ranks are compiled for: openmpi, mpich, other or none; untold as
# long as there is no C compiler to ask.
mpi_of_compiler() {
    local mpicc=${MPICC:-mpicc}
    [ -z "${MPI_PKG_CONFIG:-}${CRAY_MPICH_DIR:-}" ] || { echo other; return; }
    mpi_builds "$mpicc" || { echo none; return; }
    have_cc || { echo untold; return; }
    case $("$mpicc" -x c -E -dM - <<<'#include <mpi.h>' 2>/dev/null) in
    *'#define OPEN_MPI '* | *'#define OMPI_MPI_H'*) echo openmpi ;;
    *'#define MPICH_VERSION '*) echo mpich ;;
    *) echo other ;;
    esac
}

# Which MPI the ranks are started by, as `skt-hpl launch` tells them apart.
mpi_of_mpirun() {
    have mpirun || { echo none; return; }
    case $(mpirun --version 2>&1) in
    *'Open MPI'* | *OpenRTE*) echo openmpi ;;
    *HYDRA* | *Hydra* | *'Intel(R) MPI'*) echo mpich ;;
    *) echo other ;;
    esac
}

is_any_there() {
    local file
    for file; do [ ! -e "$file" ] || return 0; done
    return 1
}

# Whether bindgen, which the MPI binding runs, finds a libclang, with the compiler's own headers,
# which Debian has in another package.
have_libclang() {
    local prefix clangs=(/usr{,/local}/lib*/{,*/,llvm*/lib/}libclang{,-[0-9]*}.so*)
    if [ -n "${LIBCLANG_PATH+set}" ]; then
        clangs=("$LIBCLANG_PATH"/libclang{,-[0-9]*}.so*)
        [ -d "$LIBCLANG_PATH" ] || clangs=("$LIBCLANG_PATH")
    elif prefix=$(llvm-config --prefix 2>/dev/null); then
        clangs+=("$prefix"/lib*/libclang{,-[0-9]*}.so*)
    fi
    is_any_there "${clangs[@]}" || return
    [ -n "${LIBCLANG_PATH+set}" ] ||
        is_any_there /usr/{,local/}lib*/{,llvm*/lib/}clang/*/include/stddef.h "$prefix"/lib*/clang/*/include/stddef.h
}

is_new_enough() {
    local version
    version=$("$1" --version 2>/dev/null | cut -d' ' -f2 | cut -d- -f1) && [ -n "$version" ] &&
        [ "$(printf '%s\n' "$RUST_NEEDED" "$version" | sort -V | sed -n 1p)" = "$RUST_NEEDED" ]
}

rust_works() { is_new_enough rustc && is_new_enough cargo; }

# A Rust that is new enough: the first one of the path, else that of rustup, which
# an older one of the system hides, else the stable one of a rustup that has an
# older one for its default.
have_rust() {
    rust_works && return
    local path_before=$PATH
    PATH="$rust_folder:$PATH"
    rust_works && return
    if RUSTUP_AUTO_INSTALL=0 RUSTUP_TOOLCHAIN=stable rust_works; then
        export RUSTUP_TOOLCHAIN=stable
        return
    fi
    PATH=$path_before
    return 1
}

# wants PACKAGE [VARIABLE...]: names what would bring what is missing, unless one
# of the variables says what else to take: that is told, not replaced.
wants() {
    local variable
    for variable in "${@:2}"; do
        if [ -n "${!variable+set}" ]; then
            echo "$variable=${!variable} cannot be used: correct it, or unset it for Debian's $1" >&2
            return 1
        fi
    done
    echo "$1"
}

mpi_packages() {
    local compiler starter
    compiler=$(mpi_of_compiler) starter=$(mpi_of_mpirun)
    case $compiler-$starter in
    none-mpich) wants libmpich-dev MPICC ;;
    none-none) echo openmpi-bin && wants libopenmpi-dev MPICC ;;
    none-*) wants libopenmpi-dev MPICC ;;
    mpich-none) echo mpich ;;
    openmpi-none) echo openmpi-bin ;;
    other-none | openmpi-mpich | mpich-openmpi)
        echo "the compiler of MPI (${MPICC:-mpicc}: $compiler) and mpirun ($(command -v mpirun || echo none): $starter)" \
            "are not of one MPI: put those of one first in PATH, or name its compiler in MPICC" >&2
        return 1
        ;;
    esac
}

compiler_packages() {
    have cc || echo gcc
    have_cc || echo libc6-dev
    have_libclang || wants libclang-dev LIBCLANG_PATH || return
    have_rust || have curl || echo curl
    # The roots by which cargo knows the registry, if it has to ask there.
    grep -qs CERTIFICATE /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt \
        /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem "${SSL_CERT_FILE:-/dev/null}" ||
        { have_rust && cargo fetch --locked --offline >/dev/null 2>&1; } || echo ca-certificates
}

build_packages() {
    compiler_packages || return
    mpi_packages
}

# MPI is among what scripts/package fetches.
package_packages() {
    compiler_packages || return
    have git || echo git
    python3 -c 'import ensurepip' 2>/dev/null || echo python3-venv
    have dpkg || echo dpkg
}

# The loader says where it does not find a library.
have_openblas() { [ -z "$(LD_PRELOAD=libopenblas.so.0 true 2>&1)" ]; }

test_packages() {
    python3 -c 'import json' 2>/dev/null || echo python3
    # The cluster made of namespaces.
    have ip || echo iproute2
    # A command of docs/report.md.
    have jq || echo jq
    # The clients of the C interface; its header is compiled by two compilers.
    have gfortran || echo gfortran
    have clang || echo clang
    have cmake || echo cmake
    have make || echo make
    have shellcheck || echo shellcheck
}

# What only some of the tests of `scripts/test` use.
packages_of_some_tests() { test_packages && device_packages; }

# MPICH beside the MPI that is the default.
mpich_packages() {
    have mpiexec.hydra || echo mpich
    mpi_builds mpicc.mpich || echo libmpich-dev
}

launcher_packages() {
    mpich_packages
    have slurmctld || echo slurmctld
    have slurmd || echo slurmd
    have salloc || echo slurm-client
}

# The first device of OpenCL that any of its libraries has.
OPENCL_PROBE='
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
int main(void) {
    cl_platform_id platforms[16];
    cl_device_id device;
    cl_uint count = 0;
    clGetPlatformIDs(16, platforms, &count);
    for (cl_uint i = 0; i < count && i < 16; i++)
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &device, 0) == CL_SUCCESS) return 0;
    return 1;
}'

have_opencl() {
    local folder status=0
    folder=$(mktemp -d)
    { cc -x c - -o "$folder/probe" -lOpenCL <<<"$OPENCL_PROBE" && "$folder/probe"; } >/dev/null 2>&1 || status=1
    rm -r "$folder"
    return $status
}

have_hip() {
    links $'#include <hip/hip_runtime_api.h>\nint main(void) { return hipInit(0); }' cc \
        -D__HIP_PLATFORM_AMD__ -lamdhip64
}

# A CUDA that is installed, or else the header and the runtime library of one, in which nothing
# runs without a driver.
cuda_wheel=nvidia-cuda-runtime==13.5.37
cuda_folder=${CARGO_TARGET_DIR:-target}/device-headers

have_cuda() { [ -e "${CUDA_HOME:-$cuda_folder/nvidia/cu13}/include/cuda.h" ]; }

# None of these needs a device: that of OpenCL is the CPU.
device_packages() {
    have_opencl || printf '%s\n' pocl-opencl-icd ocl-icd-opencl-dev opencl-headers
    have_hip || echo libamdhip64-dev
    have_cuda || python3 -c 'import ensurepip' 2>/dev/null || echo python3-venv
}

fresh_packages() {
    have git || echo git
    have debootstrap || echo debootstrap
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || echo debian-archive-keyring
}

missing_packages() {
    case $1 in
    build) build_packages ;;
    # Libraries with faults, which the tests load, pass calls on to one without.
    test)
        build_packages && { have_openblas || echo libopenblas0; }
        ! may_install || packages_of_some_tests
        ;;
    mpich) build_packages && test_packages && mpich_packages ;;
    valgrind) build_packages && test_packages && { have valgrind || echo valgrind; } ;;
    launchers) build_packages && test_packages && launcher_packages ;;
    fresh) fresh_packages ;;
    package) package_packages ;;
    esac
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

may_install() { [ "${SKT_HPL_INSTALL:-no}" = yes ]; }

install_packages() {
    if ! have apt-get; then
        echo "missing, by their Debian names: $*" >&2
        echo "there is no apt-get here; install these with the package manager of this system" >&2
        return 1
    fi
    if [ "$(id -u)" != 0 ] && ! have sudo; then
        echo "missing: $*; become root and run: apt-get install --no-install-recommends $*" >&2
        return 1
    fi
    if ! may_install; then
        echo "missing: $*; SKT_HPL_INSTALL=yes installs them, or as root:" \
            "apt-get install --no-install-recommends $*" >&2
        return 1
    fi
    echo "== installs with apt-get: $*"
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}

install_rust() {
    if ! may_install; then
        echo "missing: Rust $RUST_NEEDED or newer; SKT_HPL_INSTALL=yes installs it with rustup" >&2
        return 1
    fi
    if have rustup; then
        echo "== installs the stable Rust toolchain with rustup ($RUST_NEEDED or newer is needed)"
        rustup toolchain install stable --profile minimal --component rustfmt --component clippy
    else
        echo "== installs Rust with the installer of https://rustup.rs into ${rust_folder%/bin} ($RUST_NEEDED or newer is needed)"
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
            sh -s -- -y --profile minimal --component rustfmt --component clippy --no-modify-path
    fi
    have_rust || {
        echo "no Rust $RUST_NEEDED or newer, although it was just installed: rustc is $(command -v rustc), $(rustc --version)" >&2
        return 1
    }
}

have_lints() { { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; }

install_lints() {
    if ! have rustup || ! may_install; then
        echo "missing: rustfmt and clippy, components of Rust (rustup component add rustfmt clippy)" >&2
        return 1
    fi
    echo "== installs rustfmt and clippy with rustup"
    rustup component add rustfmt clippy
}

install_cuda() {
    if [ -n "${CUDA_HOME+set}" ]; then
        echo "CUDA_HOME=$CUDA_HOME has no include/cuda.h: correct it, or unset it for PyPI's $cuda_wheel" >&2
        return 1
    fi
    echo "== installs $cuda_wheel of PyPI into $cuda_folder"
    rm -rf "$cuda_folder"
    python3 -m venv "$cuda_folder/python" &&
        "$cuda_folder/python/bin/pip" install -q --no-deps --target "$cuda_folder" "$cuda_wheel" || return
    have_cuda || { echo "no cuda.h in $cuda_folder, although $cuda_wheel was just installed there" >&2 && return 1; }
}

# Names what some tests lack here.
name_lacks_of_tests() {
    local lacks
    lacks=$(packages_of_some_tests)
    have_lints || lacks+=" rustfmt clippy"
    have_cuda || lacks+=" cuda.h"
    [ -z "$lacks" ] || echo "== not here, so tests that use it are skipped (SKT_HPL_INSTALL=yes" \
        "installs it): ${lacks//$'\n'/ }"
}

# needs build|test|mpich|launchers|valgrind|fresh|package
needs() {
    local packages installed=
    packages=$(missing_packages "$1") || return
    # Some can be tried only when others are there.
    while [ -n "$packages" ]; do
        if [ "$packages" = "$installed" ]; then
            echo "installed, and does not work: ${packages//$'\n'/ }; look for others that come first in PATH" >&2
            return 1
        fi
        # One package a line, no spaces within.
        # shellcheck disable=SC2086
        install_packages $packages || {
            # All that is missing is named at once.
            have_rust || may_install || install_rust
            return 1
        }
        installed=$packages
        packages=$(missing_packages "$1") || return
    done
    have_rust || install_rust
    if [ "$1" = test ] && ! may_install; then
        name_lacks_of_tests
        return
    fi
    if [ "$1" = test ] && ! have_cuda; then
        install_cuda || return
        installed=$cuda_wheel
    fi
    [ -n "$installed" ] || echo "== nothing to install: all that this needs is here"
    case $1 in test | mpich | launchers) have_lints || install_lints ;; esac
}
