#!/launcher/busybox sh
# Entry point of the launcher image: copies the launcher to where the init container of a worker wants it.
set -eu
if [ "$#" -ne 2 ] || [ "$1" != --install ]; then
    echo "usage: --install DESTINATION" >&2
    exit 2
fi
exec /launcher/busybox cp /launcher/run.pyz "$2"
