# For scripts that need a new Debian or Ubuntu, with apt and nothing else: source it. Needs root and debootstrap.

# new_system FOLDER [SUITE [ARCH]]: by default of this machine's release and architecture. The archive is the one of
# apt's settings here. For another architecture, qemu-user-static must be installed and registered (binfmt_misc).
new_system() {
    local suite archive
    [ "$(id -u)" -eq 0 ] || { echo "a new system is made with debootstrap, which needs root" >&2; return 1; }
    # "bookworm", and not "bookworm-security".
    read -r suite archive < <(apt-get indextargets 'Created-By: Packages' --format '$(RELEASE) $(REPO_URI)' |
        awk '$1 !~ /-/' | head -1) || { echo "apt is configured for no archive" >&2; return 1; }
    mkdir -p "$1"
    debootstrap --variant=minbase ${3:+--arch="$3"} "${2:-$suite}" "$1" "$archive" >"$1.log" || {
        tail -3 "$1.log" >&2
        return 1
    }
    rm -f "$1.log"
    cp /etc/resolv.conf "$1/etc/" 2>/dev/null || true
    mount -t proc proc "$1/proc"
    within "$1" 'apt-get -qq update'
}

# within FOLDER COMMAND: runs it there, as root, with an environment of its own.
within() {
    chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        bash -euc "$2"
}

# in_system FOLDER PACKAGE...: installs packages there.
in_system() {
    local folder=$1
    shift
    within "$folder" "apt-get -qq install --no-install-recommends $* >/dev/null 2>/var/log/install.log ||
        { cat /var/log/install.log >&2; exit 1; }"
}

remove_system() { # remove_system FOLDER
    [ -d "$1" ] || return 0
    ! mountpoint -q "$1/proc" || umount "$1/proc" || return 1
    rm -rf --one-file-system "$1"
}
