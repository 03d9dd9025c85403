/* What libraries read when they are loaded, and crashes under a memory limit.
 *
 * OpenMP's threads wait by spinning for long, which starves the threads that read images and every other program as
 * soon as cores are shared; OpenBLAS starts a thread per core that cloob never uses. Both read their settings when they
 * are loaded, which happens on first use. */
#include "cli/commands.h"

#include <dlfcn.h>
#ifdef __GLIBC__
#    include <execinfo.h>
#endif
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

void startup_set_environment(void)
{
    if (!getenv("OMP_WAIT_POLICY")) setenv("GOMP_SPINCOUNT", "2000", 0);
    setenv("OPENBLAS_NUM_THREADS", "1", 0);
}

/* ---- a crash under a memory limit ----------------------------------------------------------------- */

static void print(const char *text)
{
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n;
}

static bool memory_is_limited(void)
{
    struct rlimit space, data;
    return getrlimit(RLIMIT_AS, &space) != 0 || getrlimit(RLIMIT_DATA, &data) != 0 || space.rlim_cur != RLIM_INFINITY ||
           data.rlim_cur != RLIM_INFINITY;
}

/* Libraries that do not check the result of malloc end here. Not installed without a limit, where a crash dumps
 * core. */
static void on_crash(int number)
{
    (void)number;
    print("cloob: out of memory: a library failed under the memory limit (ulimit -v); raise it, or use fewer --threads "
          "or a smaller "
          "batch\n");
    _exit(1);
}

static void on_terminate(void) { on_crash(0); }

/* An uncaught exception, such as oneDNN's bad_alloc: glibc loads its unwinder when the first one is thrown,
 * and libstdc++ reports it; without memory both print lines of their own. So the unwinder is loaded now, and
 * on_crash replaces the report. */
static void catch_exceptions(void)
{
    void (*(*set_terminate)(void (*)(void)))(void);
    void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL); /* oneDNN's own, before oneDNN is loaded */
    *(void **)&set_terminate = library ? dlsym(library, "_ZSt13set_terminatePFvvE") : NULL; /* std::set_terminate */
    if (set_terminate) set_terminate(on_terminate);
#ifdef __GLIBC__
    void *frame;
    backtrace(&frame, 1);
#endif
}

void startup_catch_crashes(void)
{
    static char stack[16384] __attribute__((aligned(16)));
    stack_t own = { .ss_sp = stack, .ss_size = sizeof stack };
    struct sigaction action = { .sa_handler = on_crash, .sa_flags = SA_ONSTACK };
    if (!memory_is_limited()) return;
    catch_exceptions();
    sigaltstack(&own, NULL); /* the main thread's; others have their own stack left */
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGABRT, &action, NULL);
}
