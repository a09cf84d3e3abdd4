#!/bin/sh
# Replace this with what repairs your machines. It is given NODE, ACTION and REASON, and the RepairRequest as JSON on standard
# input; it ends with 0 once the machine has been repaired. Two that people use:
#
#   curl --fail --silent --show-error --max-time 1500 --json @- "$WEBHOOK_URL"       # answers when it is done
#   ipmitool -I lanplus -H "bmc-$NODE" -U admin -f /secrets/bmc chassis power cycle
echo "no way to $ACTION $NODE ($REASON) is set up: see examples/repair" >&2
exit 1
