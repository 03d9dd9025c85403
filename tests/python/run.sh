#!/bin/sh
# Runs the package's tests on the library of a build folder: run.sh BUILD SOURCE. 77: skipped.
# Python is CLOOB_PYTHON, or the first of python3 and the system's python3 that has numpy (scripts/install-deps.sh test).
build=$1 source=$2
for python in ${CLOOB_PYTHON:-python3 /usr/bin/python3}; do
    if "$python" -c 'import sys; assert sys.version_info >= (3, 9); import numpy' 2>/dev/null; then
        CLOOB_BUILD=$build CLOOB_LIBRARY=$build/libcloob.so PYTHONPATH=$source/python PYTHONDONTWRITEBYTECODE=1 \
            exec "$python" -m unittest discover -s "$source/tests/python" -p 'test_*.py'
    fi
done
echo "skipped: no Python 3.9 with numpy (make deps installs it; CLOOB_PYTHON names another)"
exit 77
