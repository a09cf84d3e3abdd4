#!/bin/sh
# Debian's PyTorch is built without libuv, and torchrun has no option that says so to the stores it makes: they get it here.
set -eu
cd /usr/lib/python3/dist-packages/torch/distributed
for module in rendezvous elastic/rendezvous/c10d_rendezvous_backend elastic/rendezvous/static_tcp_rendezvous; do
    sed -i 's/^\(from torch\.distributed import .*\bTCPStore\)$/\1\
TCPStore = __import__("functools").partial(TCPStore, use_libuv=False)/' "$module.py"
    grep -q '^TCPStore = ' "$module.py"
done
sed -i 's/\bdist\.TCPStore($/dist.TCPStore(use_libuv=False,/' elastic/rendezvous/dynamic_rendezvous.py
grep -q 'use_libuv=False,$' elastic/rendezvous/dynamic_rendezvous.py
python3 -m compileall -q --invalidation-mode unchecked-hash rendezvous.py elastic/rendezvous
