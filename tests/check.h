/* A test is a function without arguments; CHECK counts a failure and continues, so one run shows all of them.
 *
 *     static void rows_have_unit_length(void) { CHECK_NEAR(norm, 1.0, 1e-6); }
 *     int main(void) { RUN(rows_have_unit_length); return check_summary(); }
 *
 * A test program's exit code is its verdict: 0 passed, 1 failed, 77 skipped. A case that cannot run here says so with
 * SKIP; a program all of whose cases were skipped has tested nothing, and ctest shows it as skipped, not as passed.
 *
 * CHECK_ONLY=WORD in the environment runs the cases whose names hold WORD; CHECK_PART=I/N every N-th case from the I-th
 * (from 0) on, for several processes side by side or under tools that slow a program down. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECK_SKIPPED = 77 }; /* the exit code that tests/CMakeLists.txt declares as SKIP_RETURN_CODE */

static int check_failed_, check_passed_, check_skipped_, check_bad_here_, check_seen_;

static inline bool check_wanted(const char *name)
{
    const char *word = getenv("CHECK_ONLY"), *part = getenv("CHECK_PART");
    int i = 0, n = 1;
    if (part && (sscanf(part, "%d/%d", &i, &n) != 2 || n < 1)) i = 0, n = 1;
    return check_seen_++ % n == i && (!word || strstr(name, word));
}

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("  %s:%d: %s\n", __FILE__, __LINE__, #condition);                                                   \
            check_bad_here_++;                                                                                         \
        }                                                                                                              \
    } while (0)

/* |a - b| <= tolerance * max(1, |b|); NaN never passes. */
#define CHECK_NEAR(a, b, tolerance)                                                                                    \
    do {                                                                                                               \
        double a_ = (double)(a), b_ = (double)(b), scale_ = fabs(b_) > 1 ? fabs(b_) : 1;                               \
        if (!(fabs(a_ - b_) <= (double)(tolerance)*scale_)) {                                                          \
            printf("  %s:%d: %s = %.9g, expected %.9g (tolerance %g)\n", __FILE__, __LINE__, #a, a_, b_,               \
                   (double)(tolerance));                                                                               \
            check_bad_here_++;                                                                                         \
        }                                                                                                              \
    } while (0)

#define CHECK_STR(a, b)                                                                                                \
    do {                                                                                                               \
        const char *a_ = (a), *b_ = (b);                                                                               \
        if (strcmp(a_, b_) != 0) {                                                                                     \
            printf("  %s:%d: %s = \"%s\", expected \"%s\"\n", __FILE__, __LINE__, #a, a_, b_);                         \
            check_bad_here_++;                                                                                         \
        }                                                                                                              \
    } while (0)

/* A call that must succeed; the context's error text is shown when it does not. */
#define CHECK_OK(ctx, call)                                                                                            \
    do {                                                                                                               \
        if ((call) != CLOOB_OK) {                                                                                      \
            printf("  %s:%d: %s: %s\n", __FILE__, __LINE__, #call, cloob_error(ctx));                                  \
            check_bad_here_++;                                                                                         \
        }                                                                                                              \
    } while (0)

#define SKIP(why)                                                                                                      \
    do {                                                                                                               \
        printf("  skipped: %s\n", why);                                                                                \
        check_skipped_++;                                                                                              \
        return;                                                                                                        \
    } while (0)

#define RUN(test)                                                                                                      \
    do {                                                                                                               \
        if (!check_wanted(#test)) break;                                                                               \
        check_bad_here_ = 0;                                                                                           \
        int skipped_before_ = check_skipped_;                                                                          \
        test();                                                                                                        \
        printf("%s %s\n", check_bad_here_ ? "FAIL" : check_skipped_ > skipped_before_ ? "skip" : "ok  ", #test);       \
        if (check_bad_here_) check_failed_++;                                                                          \
        else check_passed_++;                                                                                          \
    } while (0)

static inline int check_summary(void)
{
    printf("%d passed, %d failed, %d skipped\n", check_passed_ - check_skipped_, check_failed_, check_skipped_);
    if (check_failed_) return 1;
    return check_skipped_ == check_passed_ ? CHECK_SKIPPED : 0; /* also where no case was reached */
}

/* Makes a scratch folder and writes its name to path; ends the program when that fails. */
static inline void scratch_folder(char *path, size_t size)
{
    const char *temporary = getenv("TMPDIR");
    snprintf(path, size, "%.200s/cloob-test-XXXXXX", temporary ? temporary : "/tmp");
    if (!mkdtemp(path)) perror(path), exit(1);
}

/* Removes a folder that the test has made. */
static inline void check_remove(const char *folder)
{
    char command[1100];
    snprintf(command, sizeof command, "rm -rf '%.1000s'", folder);
    if (system(command) != 0) printf("  %s is left\n", folder);
}

/* |a - b| / max(|b|, floor), norm-wise. */
static inline double relative_error(const float *a, const float *b, int64_t n, double floor_)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    norm = sqrt(norm);
    return sqrt(diff) / (norm > floor_ ? norm : floor_);
}

#endif
