/* The largest resident size of this process, for benchmarks and tests of memory. */
#ifndef CORE_PEAK_H
#define CORE_PEAK_H

#include <stdint.h>

/* Bytes, since the process began or since peak_reset. Not getrusage's: that one starts with the size of the process
 * that started this one. 0 where the system does not tell. */
int64_t peak_bytes(void);

/* From here on. Where the system cannot do it, peak_bytes goes on counting from the start. */
void peak_reset(void);

#endif
