#!/usr/bin/env bash
# Runs npm's scripts in web/, such as `scripts/web.sh build`: with this machine's Node, or PyPI's where that is missing or old.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/node.sh

cd web
install_locked
for name in "$@"; do npm run --silent "$name"; done
