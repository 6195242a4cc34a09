#!/usr/bin/env bash
# The native engine under AddressSanitizer and UndefinedBehaviorSanitizer, then under valgrind: `make sanitize`.
# What runs is tests/engines/native/check.cpp: small random cases, every array no longer than it must be.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH="$PWD/.venv/bin:$PATH"  # pip brings cmake, perhaps

check() { # folder, flags of the compiler
  cmake -S native -B "build/$1" -DREGARD_CHECK=ON -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS="-O1 $2" >/dev/null
  cmake --build "build/$1" --target check --parallel 2
}

# on imitated tiles, as no sanitizer sees what a tile instruction reads
check sanitize "-fsanitize=address,undefined -fno-sanitize-recover=undefined -DREGARD_IMITATE_AMX"
build/sanitize/check 200

if ! command -v valgrind >/dev/null; then
  echo "No valgrind found: that half was not run. On Debian and Ubuntu: apt-get install valgrind"
  exit 1
fi
check valgrind ""
# valgrind knows no AVX-512, so the builds that use it do not run there; OpenMP keeps its threads, "possibly lost"
valgrind --quiet --error-exitcode=1 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
  build/valgrind/check 12
