#include "core/peak.h"

#include <stdio.h>
#include <string.h>

int64_t peak_bytes(void)
{
    char line[256];
    long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && kib == 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %lld kB", &kib) != 1) kib = 0;
    if (f) fclose(f);
    return kib * 1024;
}

void peak_reset(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f) return;
    fputs("5", f);
    fclose(f);
}
