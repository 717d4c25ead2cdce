# shellcheck shell=bash
# Makes a machine ready to build and run svclab. Sourced by scripts/lab and
# scripts/test; defines functions and sets `root`, the checkout's directory.
#
# What is there is not touched: a second run asks `command -v` and is done. What
# is missing is installed with apt on Debian and Ubuntu, as root or through
# sudo, and Rust by rustup into the user's own directory. Elsewhere, and where
# neither root nor sudo is at hand, the script says what to install and stops
# with exit code 3, svclab's for "this machine cannot run it".

root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd -P)

# Debian keeps iptables and others out of an ordinary user's PATH.
PATH=${CARGO_HOME:=${HOME:-/root}/.cargo}/bin:$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH CARGO_HOME

say() {
    printf '%s\n' "$*" >&2
}

cannot() {
    say "$@"
    exit 3
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# Whether a C compiler is there with what it needs to link: the libc's start
# file, which the compiler's own package does not bring along.
can_link() {
    has cc && [[ $(cc -print-file-name=crt1.o) == /* ]]
}

has_certificates() {
    [[ -s /etc/ssl/certs/ca-certificates.crt || -s /etc/ssl/cert.pem ||
        -s /etc/pki/tls/certs/ca-bundle.crt ]]
}

# The Debian packages that are missing for running labs, one a line.
missing_for_labs() {
    { has iptables-nft-restore && has iptables-legacy-restore; } || echo iptables
    has ipset || echo ipset
    has nft || echo nftables
    has ip || echo iproute2
    # Guests: a kernel of the distribution is downloaded, QEMU runs it.
    has qemu-system-x86_64 || echo qemu-system-x86
    can_link || printf '%s\n' gcc libc6-dev
    has_certificates || echo ca-certificates
    # Only rustup is fetched by hand.
    has cargo || has rustup || has curl || echo curl
}

# The Debian packages that are missing for the tests on top of that.
missing_for_tests() {
    has tcpdump || echo tcpdump
    has tshark || echo tshark
    # Reads back what a guest's kernel was told of virtual servers.
    has ipvsadm || echo ipvsadm
    # What `svclab diff` reads.
    has sysctl || echo procps
}

# The Debian packages that are missing for the long suites on top of that: the
# fuzzers' library is C++.
missing_for_long_tests() {
    has c++ || echo g++
}

missing_for_anything() {
    missing_for_labs
    missing_for_tests
}

# Installs the packages named.
install_packages() {
    (($#)) || return 0
    has apt-get || cannot "svclab needs these programs, by the names of Debian's packages: $*
Install them with your system's package manager and run this again."

    local -a as_root=()
    if [[ $(id -u) != 0 ]]; then
        has sudo || cannot "svclab needs packages that only root can install. Run, as root:
    apt-get update && apt-get install --no-install-recommends $*
and then this again."
        as_root=(sudo)
    fi
    say "Installing $*"
    local -a apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
        apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
    # Lists that cannot be refreshed may still do.
    "${apt[@]}" update >&2 || say "apt-get update failed; trying with the lists at hand"
    "${apt[@]}" install -y --no-install-recommends "$@" >&2 ||
        cannot "apt-get could not install: $*"
}

# Whether cargo is there and not older than Cargo.toml's rust-version.
cargo_will_do() {
    local wanted found
    wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$root/Cargo.toml")
    found=$(cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p')
    [[ -n $found ]] &&
        [[ $(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1) == "$wanted" ]]
}

install_rust() {
    ! cargo_will_do || return 0
    if has rustup; then
        say "Installing the current stable Rust"
        rustup --quiet toolchain install stable --profile minimal >&2 ||
            cannot "rustup could not install a toolchain"
        # Whatever is the default stays the default.
        export RUSTUP_TOOLCHAIN=stable
    else
        has curl || install_packages curl
        say "Installing Rust by rustup into $CARGO_HOME"
        # With a cargo of the system's in PATH rustup asks before it goes on.
        curl --proto '=https' --tlsv1.2 --silent --show-error --fail https://sh.rustup.rs |
            RUSTUP_INIT_SKIP_PATH_CHECK=yes sh -s -- -y --quiet --profile minimal --no-modify-path >&2 ||
            cannot "rustup could not be installed; see its message above"
    fi
    hash -r
    cargo_will_do || cannot "cargo is older than svclab needs, or does not start: $(cargo --version 2>&1)"
}

# Installs what the given function lists, and asks it again afterwards: a
# package of that name need not have brought what was missing.
provide() {
    local -a missing
    mapfile -t missing < <("$1")
    ((${#missing[@]})) || return 0
    install_packages "${missing[@]}"
    hash -r
    mapfile -t missing < <("$1")
    ((!${#missing[@]})) || cannot "Still missing after installing them: ${missing[*]}"
}

# All that labs need.
setup_labs() {
    provide missing_for_labs
    install_rust
}

# All that the tests need.
setup_tests() {
    provide missing_for_anything
    install_rust
    if ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
        has rustup || cannot "The tests need rustfmt and clippy; install them beside cargo and run this again."
        say "Installing rustfmt and clippy"
        rustup --quiet component add rustfmt clippy >&2 || cannot "rustup could not install them"
    fi
}

# All that the long suites need besides.
setup_long_tests() {
    provide missing_for_long_tests
    local tool
    for tool in cargo-fuzz cargo-deny; do
        has "$tool" || {
            say "Installing $tool"
            cargo install --quiet --locked "$tool" >&2 || cannot "cargo could not install $tool"
        }
    done
}
