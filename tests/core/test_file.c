/* Files in a world that is not friendly: links in the way, devices and pipes as targets, names that others could
 * foresee. */
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/file.h"

static cloob_ctx *ctx;
static char dir[256];

static char *at(const char *name)
{
    static char path[8][512];
    static int turn;
    char *p = path[turn++ % 8];
    snprintf(p, 512, "%s/%s", dir, name);
    return p;
}

static bool holds(const char *name, const char *text)
{
    file_bytes b;
    if (file_read(ctx, at(name), 1 << 20, &b) != CLOOB_OK) return false;
    bool same = strcmp(b.data, text) == 0;
    file_bytes_release(&b);
    return same;
}

static mode_t mode_of(const char *name)
{
    struct stat st;
    return lstat(at(name), &st) == 0 ? st.st_mode : 0;
}

static int entries(void)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static void a_link_stays_and_its_target_is_replaced(void)
{
    CHECK_OK(ctx, file_write(ctx, at("real"), "old", 3));
    CHECK(symlink("real", at("link")) == 0 && symlink("link", at("link2")) == 0);
    CHECK_OK(ctx, file_write(ctx, at("link2"), "new", 3));
    CHECK(S_ISLNK(mode_of("link")) && S_ISLNK(mode_of("link2")) && holds("real", "new"));
    CHECK(symlink("missing", at("dangling")) == 0);
    CHECK_OK(ctx, file_write(ctx, at("dangling"), "made", 4));
    CHECK(S_ISLNK(mode_of("dangling")) && holds("missing", "made"));
    CHECK(symlink("loop", at("loop")) == 0);
    CHECK(file_write(ctx, at("loop"), "x", 1) == CLOOB_ERR_IO);
}

static void modes_follow_the_umask_and_the_old_file(void)
{
    mode_t before = umask(027);
    CHECK_OK(ctx, file_write(ctx, at("fresh"), "a", 1));
    umask(022);
    CHECK((mode_of("fresh") & 0777) == 0640);
    CHECK(chmod(at("fresh"), 0600) == 0);
    CHECK_OK(ctx, file_write(ctx, at("fresh"), "b", 1));
    CHECK((mode_of("fresh") & 0777) == 0600);
    umask(before);
}

/* Links under every name that the old scheme could take lead nowhere. */
static void a_partial_name_cannot_be_foreseen(void)
{
    char name[64];
    CHECK_OK(ctx, file_write(ctx, at("victim"), "precious", 8));
    for (int tid = (int)gettid() - 2; tid < (int)gettid() + 2; tid++) {
        snprintf(name, sizeof name, "target.tmp-%d", tid);
        CHECK(symlink("victim", at(name)) == 0);
    }
    CHECK_OK(ctx, file_write(ctx, at("target"), "mine", 4));
    CHECK(holds("victim", "precious") && holds("target", "mine"));
    file_writer w;
    CHECK_OK(ctx, file_writer_begin_named(ctx, at("target"), &w));
    CHECK(w.partial && strlen(w.partial) > strlen(at("target.tmp-")) + 8);
    file_writer_abort(&w);
}

static void devices_are_written_to_and_stay(void)
{
    CHECK(mkfifo(at("fifo"), 0600) == 0);
    int reader = open(at("fifo"), O_RDONLY | O_NONBLOCK);
    char got[8] = "";
    CHECK_OK(ctx, file_write(ctx, at("fifo"), "piped", 5));
    CHECK(read(reader, got, 5) == 5 && strcmp(got, "piped") == 0);
    close(reader);
    CHECK(S_ISFIFO(mode_of("fifo")));
    CHECK_OK(ctx, file_write(ctx, "/dev/null", "x", 1));
    CHECK(file_write(ctx, "/dev/full", "x", 1) == CLOOB_ERR_IO);
    struct stat st;
    CHECK(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
}

static void folders_and_sockets_are_refused(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%.90s/socket", dir);
    CHECK(s >= 0 && bind(s, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(file_write(ctx, at("socket"), "x", 1) == CLOOB_ERR_IO && S_ISSOCK(mode_of("socket")));
    close(s);
    CHECK(file_write(ctx, dir, "x", 1) == CLOOB_ERR_IO);
    CHECK(strstr(cloob_error(ctx), "folder"));
}

static void *write_late(void *path)
{
    nanosleep(&(struct timespec){ 0, 100000000 }, NULL);
    FILE *f = fopen(path, "w");
    nanosleep(&(struct timespec){ 0, 100000000 }, NULL);
    if (f) fputs("late", f), fclose(f);
    return NULL;
}

/* A pipe with a writer is read, however late it is; a mapping never waits for one. */
static void pipes_are_read_and_never_waited_for_forever(void)
{
    pthread_t t;
    file_map m;
    char path[512];
    CHECK(mkfifo(at("slow"), 0600) == 0);
    snprintf(path, sizeof path, "%s", at("slow"));
    CHECK(file_map_open(ctx, path, &m) == CLOOB_ERR_IO);
    CHECK(pthread_create(&t, NULL, write_late, path) == 0);
    CHECK(holds("slow", "late"));
    pthread_join(t, NULL);
}

static void a_failed_write_leaves_nothing(void)
{
    file_writer w;
    CHECK_OK(ctx, file_write(ctx, at("kept"), "old", 3));
    int before = entries();
    CHECK_OK(ctx, file_writer_begin_named(ctx, at("kept"), &w));
    fputs("half", w.stream);
    file_writer_abort(&w);
    CHECK_OK(ctx, file_writer_begin(ctx, at("kept"), &w));
    fputs("half", w.stream);
    file_writer_abort(&w);
    CHECK(entries() == before && holds("kept", "old"));
    CHECK_OK(ctx, file_writer_begin(ctx, at("kept"), &w));
    fputs("whole", w.stream);
    CHECK_OK(ctx, file_writer_commit(ctx, &w));
    CHECK(entries() == before && holds("kept", "whole"));
    CHECK_OK(ctx, file_writer_begin_named(ctx, at("kept"), &w));
    fputs("again", w.stream);
    CHECK_OK(ctx, file_writer_commit(ctx, &w));
    CHECK(entries() == before && holds("kept", "again"));
}

/* A process that is killed while it writes leaves nothing, whether the target is there already or not. */
static void a_kill_leaves_nothing(void)
{
    static const char *const names[] = { "kept", "never" };
    for (int i = 0; i < 2; i++) {
        int before = entries();
        pid_t child = fork();
        if (child == 0) {
            file_writer w;
            if (file_writer_begin(ctx, at(names[i]), &w) != CLOOB_OK) _exit(1);
            fputs("half", w.stream);
            fflush(w.stream);
            raise(SIGKILL);
        }
        int how = 0;
        CHECK(waitpid(child, &how, 0) == child && WIFSIGNALED(how));
        CHECK(entries() == before);
    }
    CHECK(holds("kept", "again"));
}

static void names_may_be_as_long_as_they_can(void)
{
    char name[256];
    memset(name, 'n', 250);
    name[250] = '\0';
    CHECK_OK(ctx, file_write(ctx, at(name), "x", 1));
}

static void times_beyond_int64_are_limited(void)
{
    CHECK(time_ns((struct timespec){ 1, 5 }) == 1000000005 && time_ns((struct timespec){ -1, 5 }) == -999999995);
    CHECK(time_ns((struct timespec){ 99999999999, 0 }) == INT64_MAX); /* year 5138 */
    CHECK(time_ns((struct timespec){ -99999999999, 0 }) == INT64_MIN);
    CHECK(time_ns((struct timespec){ INT64_MAX / 1000000000, 999999999 }) == INT64_MAX);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    scratch_folder(dir, sizeof dir);
    RUN(a_link_stays_and_its_target_is_replaced);
    RUN(modes_follow_the_umask_and_the_old_file);
    RUN(a_partial_name_cannot_be_foreseen);
    RUN(devices_are_written_to_and_stay);
    RUN(folders_and_sockets_are_refused);
    RUN(pipes_are_read_and_never_waited_for_forever);
    RUN(a_failed_write_leaves_nothing);
    RUN(a_kill_leaves_nothing);
    RUN(times_beyond_int64_are_limited);
    RUN(names_may_be_as_long_as_they_can);
    check_remove(dir);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
