# Sourced last by every RUN whose layer is kept: what the RUN changed gets one fixed date, so that the same input gives the same layer to
# the byte. The builder puts its mounts into / and /run before begin.sh is read, so these are named.
find /tmp -mindepth 1 -newerct "@$began" -delete
touch --date="@$SOURCE_DATE_EPOCH" / /etc /run
find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path '/run/*' -o -path /etc/hosts -o -path /etc/resolv.conf \) -prune \
    -o -newerct "@$began" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
