/* The entry point libFuzzer calls, declared for the compiler's sake. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H
#include <stddef.h>
#include <stdint.h>
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
#endif
