/* Before main: settings that libraries read when they are loaded, and a memory limit too small for them.
 *
 * OpenMP's threads wait by spinning for long, which starves the threads that read images and every other program as
 * soon as cores are shared; OpenBLAS starts a thread per core that cloob never uses. Both read their settings before
 * main runs. And OpenBLAS waits forever when it cannot allocate its buffers. So this function is in the program's
 * preinit array, which the loader calls before the constructors of any library; it may use system calls alone. */
#include "cli/commands.h"

#include <dlfcn.h>
#ifdef __GLIBC__
#    include <execinfo.h>
#endif
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MAX_ENV = 4096 };

#define LOAD_BYTES                                                                                                     \
    ((size_t)96 << 20) /* what the constructors of OpenBLAS, oneDNN and OpenMP allocate together, and a margin */

static const char *find(char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; *env; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=') return *env;
    return NULL;
}

/* Executes the program again with the settings. Returns where there is no /proc: the program then runs without them. */
static void set_environment(char **argv, char **env)
{
    static char spin[] = "GOMP_SPINCOUNT=2000", blas[] = "OPENBLAS_NUM_THREADS=1";
    static char *more[MAX_ENV + 3];
    int n = 0;
    bool polite = find(env, "OMP_WAIT_POLICY") || find(env, "GOMP_SPINCOUNT"),
         single = find(env, "OPENBLAS_NUM_THREADS");
    if (polite && single) return;
    while (env[n] && n < MAX_ENV) more[n] = env[n], n++;
    if (env[n]) return;
    if (!polite) more[n++] = spin;
    if (!single) more[n++] = blas;
    execve("/proc/self/exe", argv, more);
}

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

static void check_memory(void)
{
    if (!memory_is_limited()) return;
    void *p = mmap(NULL, LOAD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) {
        munmap(p, LOAD_BYTES);
        return;
    }
    print("cloob: out of memory: the limit (ulimit -v) is too small to start; raise it\n");
    _exit(1);
}

static void before_libraries(int argc, char **argv, char **env)
{
    (void)argc;
    set_environment(argv, env);
    check_memory();
}

__attribute__((section(".preinit_array"), used)) static void (*const preinit)(int, char **, char **) = before_libraries;

/* ---- a crash under a memory limit ----------------------------------------------------------------- */

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
    *(void **)&set_terminate = dlsym(RTLD_DEFAULT, "_ZSt13set_terminatePFvvE"); /* std::set_terminate */
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
