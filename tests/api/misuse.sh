#!/bin/bash
# test_misuse.c calls every public function that takes arguments with invalid ones. Usage: misuse.sh SOURCE_DIR
cd "$1" || exit 1
missing=$(sed -n 's/^CLOOB_OPTIONS_INIT(\(.*\)).*/CLOOB_API void \1_init(/p; /^CLOOB_API/p' include/cloob/*.h | grep -oE '^CLOOB_API [^;(]*\bcloob_[a-z0-9_]+\(' | grep -oE 'cloob_[a-z0-9_]+\($' | tr -d '(' | sort -u |
    grep -vxE 'cloob_(version|status_name|device_count|ctx_create|instruction_sets)' | while read -r f; do grep -q "\b$f(" tests/api/test_misuse.c || echo "$f"; done)
[ -z "$missing" ] || { echo "FAIL: begin these with API_NEEDS and call them with NULL in tests/api/test_misuse.c:" $missing; exit 1; }
