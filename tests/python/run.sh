#!/bin/sh
# Runs the package's tests on the library of a build folder: run.sh BUILD SOURCE. 77: skipped.
build=$1 source=$2
python=${CLOOB_PYTHON:-python3}
if ! "$python" -c 'import sys; assert sys.version_info >= (3, 9); import numpy' 2>/dev/null; then
    echo "skipped: $python is no Python 3.9 with numpy; CLOOB_PYTHON names another"
    exit 77
fi
CLOOB_BUILD=$build CLOOB_LIBRARY=$build/libcloob.so PYTHONPATH=$source/python PYTHONDONTWRITEBYTECODE=1 \
    exec "$python" -m unittest discover -s "$source/tests/python" -p 'test_*.py'
