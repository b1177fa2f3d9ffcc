#!/usr/bin/env bash
# Makes this machine the appliance: program, config, unit; starts it now and at every boot. As root, after
# tools/setup all. Safe to run again; a config that is there is left alone.
# DESTDIR=DIR: lays the files out below DIR and starts nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."

root=${DESTDIR:-}
say() { echo "millrace: $*" >&2; }
if [ -z "$root" ] && [ "$(id -u)" != 0 ]; then
  say "install.sh wants to be root"
  exit 1
fi

DESTDIR=$root cmake --install build/release --prefix /usr/local >/dev/null
if [ ! -e "$root/etc/millrace/embedded.toml" ]; then
  install -D -m 644 demos/embedded/embedded.toml "$root/etc/millrace/embedded.toml"
fi
install -D -m 644 demos/embedded/millrace.service "$root/etc/systemd/system/millrace.service"

# The service sees no home folders. If LibTorch lies in one, that folder alone is shown to it.
torch=$(ldd "$root/usr/local/bin/millrace" | sed -n 's|.*=> \(/.*\)/lib/libtorch_cpu\.so .*|\1|p')
packages=$(dirname "$(realpath "$torch")")  # the libraries of CUDA lie beside it
case $packages in
  /home/* | /root/*)
    install -d -m 755 "$root/etc/systemd/system/millrace.service.d"
    printf '[Service]\nBindReadOnlyPaths=%s\n' "$packages" >"$root/etc/systemd/system/millrace.service.d/libtorch.conf"
    ;;
esac

if [ -n "$root" ]; then
  say "laid out in $root"
  exit 0
fi
/usr/local/bin/millrace check /etc/millrace/embedded.toml >/dev/null
systemctl daemon-reload
systemctl enable millrace.service
systemctl restart --no-block millrace.service
say "look at it: systemctl status millrace; journalctl -fu millrace; http://127.0.0.1:8080"
