#!/usr/bin/env bash
# Turns this machine into an appliance: installs program, config and unit, and starts it now and at every boot.
# Run as root, after tools/setup all. Safe to repeat; an existing config is kept.
# DESTDIR=DIR: installs below DIR and starts nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."

root=${DESTDIR:-}
say() { echo "millrace: $*" >&2; }
if [ -z "$root" ] && [ "$(id -u)" != 0 ]; then
  say "error: install.sh must run as root"
  exit 1
fi

DESTDIR=$root cmake --install build/release --prefix /usr/local >/dev/null
if [ ! -e "$root/etc/millrace/embedded.toml" ]; then
  install -D -m 644 demos/embedded/embedded.toml "$root/etc/millrace/embedded.toml"
fi
install -D -m 644 demos/embedded/millrace.service "$root/etc/systemd/system/millrace.service"

# The service can't see home directories. If LibTorch is in one, make only that folder visible.
torch=$(ldd "$root/usr/local/bin/millrace" | sed -n 's|.*=> \(/.*\)/lib/libtorch_cpu\.so .*|\1|p')
packages=$(dirname "$(realpath "$torch")")  # CUDA's libraries are beside it
case $packages in
  /home/* | /root/*)
    install -d -m 755 "$root/etc/systemd/system/millrace.service.d"
    printf '[Service]\nBindReadOnlyPaths=%s\n' "$packages" >"$root/etc/systemd/system/millrace.service.d/libtorch.conf"
    ;;
esac

if [ -n "$root" ]; then
  say "installed in $root"
  exit 0
fi
/usr/local/bin/millrace check /etc/millrace/embedded.toml >/dev/null
systemctl daemon-reload
systemctl enable millrace.service
systemctl restart --no-block millrace.service
say "to watch it: systemctl status millrace; journalctl -fu millrace; http://127.0.0.1:8080"
