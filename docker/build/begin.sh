# Sourced first by every RUN whose layer is kept; end.sh is sourced last.
# The secrets are there only on a machine that reaches its package index through certificates or settings of its own.
set -eu
began=$(date +%s.%N)
sleep 0.05  # files are dated by a clock that ticks every few ms: without this the first ones would seem older than `began`
if [ -s /run/secrets/ca_bundle ]; then export PIP_CERT=/run/secrets/ca_bundle; fi
if [ -s /run/secrets/pip_conf ]; then export PIP_CONFIG_FILE=/run/secrets/pip_conf; fi
