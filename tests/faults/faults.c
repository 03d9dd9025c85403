/* Makes one system or library call of the program fail: loaded before the C library (LD_PRELOAD), it stands in for
 * malloc, write and the like, counts the calls that the program itself makes, and fails the n-th. Calls from inside
 * other libraries pass, but for those with which libmicrohttpd sends.
 *
 *     CLOOB_FAULT=alloc:17    the 17th allocation fails, the others pass; alloc:17+ also all after it
 *     CLOOB_FAULT=count       nothing fails; the counts go to the file CLOOB_FAULT_COUNT at the end, a kind a line
 *
 * Kinds: alloc, write, sync, rename, thread, map, send, open. Built by the tests, for glibc; the program under test is
 * the normal one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

typedef enum kind { ALLOC, WRITE, SYNC, RENAME, THREAD, MAP, SEND, OPEN, KINDS } kind;

static const char *const names[KINDS] = { "alloc", "write", "sync", "rename", "thread", "map", "send", "open" };

static atomic_long calls[KINDS];
static long fail_at;
static bool and_after, counting;
static int fail_kind = -1;
typedef struct code { /* where an object's instructions are */
    uintptr_t begin, end;
} code;

static code program, sender;
static bool started; /* main runs: the CUDA runtime, linked into the program, allocates before it and does not check */

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t m);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t a, size_t n);
/* In a program under the address sanitizer memory must come from it. */
extern void *__interceptor_malloc(size_t n) __attribute__((weak));
extern void *__interceptor_calloc(size_t n, size_t m) __attribute__((weak));
extern void *__interceptor_realloc(void *p, size_t n) __attribute__((weak));
extern void *__interceptor_memalign(size_t a, size_t n) __attribute__((weak));
#define REAL(name) (__interceptor_##name ? __interceptor_##name : __libc_##name)

/* The first object is the program itself. */
static int note_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size, (void)arg;
    code *c = !program.end ? &program : strstr(info->dlpi_name, "libmicrohttpd") ? &sender : NULL;
    for (int i = 0; c && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
        c->begin = info->dlpi_addr + p->p_vaddr;
        c->end = c->begin + p->p_memsz;
    }
    return 0;
}

static bool holds(const code *c, const void *at) { return (uintptr_t)at >= c->begin && (uintptr_t)at < c->end; }

static void tell(void)
{
    const char *path = getenv("CLOOB_FAULT_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    for (int k = 0; k < KINDS; k++) fprintf(f, "%s %ld\n", names[k], atomic_load(&calls[k]));
    fclose(f);
}

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("CLOOB_FAULT");
    for (int k = 0; text && k < KINDS; k++) {
        size_t n = strlen(names[k]);
        if (strncmp(text, names[k], n) != 0 || text[n] != ':') continue;
        char *end;
        fail_at = strtol(text + n + 1, &end, 10);
        and_after = *end == '+';
        fail_kind = k;
    }
    dl_iterate_phdr(note_object, NULL);
    counting = text && strcmp(text, "count") == 0;
    if (counting) atexit(tell);
}

static bool fails(kind k, const void *caller, int error)
{
    if (!started || (!counting && (int)k != fail_kind)) return false;
    if (!holds(&program, caller) && !(k == SEND && holds(&sender, caller))) return false;
    long n = atomic_fetch_add(&calls[k], 1) + 1;
    if (counting || (n != fail_at && !(and_after && n > fail_at))) return false;
    errno = error;
    return true;
}

#define FAILS(kind, error) fails(kind, __builtin_return_address(0), error)

/* The next definition of a function, found once. */
#define NEXT(name)                                                                                                     \
    static __typeof__(&name) next;                                                                                     \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, #name)

/* Counting begins with main. */
static int (*program_main)(int, char **, char **);

static int counted_main(int argc, char **argv, char **environment)
{
    started = true;
    return program_main(argc, argv, environment);
}

int __libc_start_main(int (*main_)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end);
int __libc_start_main(int (*main_)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
    NEXT(__libc_start_main);
    program_main = main_;
    return next(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}

/* ---- memory ---------------------------------------------------------------------------------------- */

void *malloc(size_t n) { return FAILS(ALLOC, ENOMEM) ? NULL : REAL(malloc)(n); }
void *calloc(size_t n, size_t m) { return FAILS(ALLOC, ENOMEM) ? NULL : REAL(calloc)(n, m); }
void *realloc(void *p, size_t n) { return FAILS(ALLOC, ENOMEM) ? NULL : REAL(realloc)(p, n); }
void *aligned_alloc(size_t a, size_t n) { return FAILS(ALLOC, ENOMEM) ? NULL : REAL(memalign)(a, n); }

int posix_memalign(void **out, size_t a, size_t n)
{
    if (FAILS(ALLOC, ENOMEM)) return ENOMEM;
    void *p = REAL(memalign)(a, n);
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}

char *strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = FAILS(ALLOC, ENOMEM) ? NULL : REAL(malloc)(n);
    return copy ? memcpy(copy, s, n) : NULL;
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    NEXT(mmap);
    return FAILS(MAP, ENOMEM) ? MAP_FAILED : next(at, n, protection, flags, fd, offset);
}

/* ---- files ----------------------------------------------------------------------------------------- */

enum { STREAM_ERROR = 0x20 }; /* glibc's flag, which ferror reads */

size_t fwrite(const void *p, size_t size, size_t n, FILE *f)
{
    NEXT(fwrite);
    if (f == stderr || !FAILS(WRITE, ENOSPC)) return next(p, size, n, f);
    f->_flags |= STREAM_ERROR;
    return 0;
}

int fflush(FILE *f)
{
    NEXT(fflush);
    if (f == stderr || !f || !FAILS(WRITE, ENOSPC)) return next(f);
    f->_flags |= STREAM_ERROR;
    return EOF;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    NEXT(pwrite);
    return FAILS(WRITE, ENOSPC) ? -1 : next(fd, p, n, at);
}

int fsync(int fd)
{
    NEXT(fsync);
    return FAILS(SYNC, EIO) ? -1 : next(fd);
}

int rename(const char *from, const char *to)
{
    NEXT(rename);
    return FAILS(RENAME, EIO) ? -1 : next(from, to);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    NEXT(linkat);
    return FAILS(RENAME, EIO) ? -1 : next(from_folder, from, to_folder, to, flags);
}

int open(const char *path, int flags, ...)
{
    NEXT(open);
    va_list args;
    va_start(args, flags);
    mode_t mode = va_arg(args, mode_t);
    va_end(args);
    return FAILS(OPEN, EMFILE) ? -1 : next(path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    NEXT(fopen);
    return FAILS(OPEN, EMFILE) ? NULL : next(path, mode);
}

/* ---- threads and sockets --------------------------------------------------------------------------- */

int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg)
{
    NEXT(pthread_create);
    return FAILS(THREAD, EAGAIN) ? EAGAIN : next(t, a, run, arg);
}

ssize_t send(int fd, const void *p, size_t n, int flags)
{
    NEXT(send);
    return FAILS(SEND, ECONNRESET) ? -1 : next(fd, p, n, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    NEXT(sendmsg);
    return FAILS(SEND, ECONNRESET) ? -1 : next(fd, m, flags);
}

ssize_t sendfile64(int to, int from, off64_t *at, size_t n)
{
    NEXT(sendfile64);
    return FAILS(SEND, ECONNRESET) ? -1 : next(to, from, at, n);
}

ssize_t writev(int fd, const struct iovec *part, int n)
{
    NEXT(writev);
    return FAILS(SEND, ECONNRESET) ? -1 : next(fd, part, n);
}
