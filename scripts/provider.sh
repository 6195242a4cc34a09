#!/usr/bin/env bash
# Installs the OpenID provider of the browser's sign-in tests; `scripts/provider.sh run` also runs it, and prints its address.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/node.sh

cd tests/explorer/signing_in/provider
install_locked
if [ "${1:-}" = run ]; then exec node provider.mjs; fi
