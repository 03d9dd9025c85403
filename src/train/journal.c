/* Writes and reads the files of a run. */
#include "train/journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/arith.h"
#include "core/file.h"
#include "core/text.h"

const char *const journal_number_names[JOURNAL_NUMBERS] = { "loss",      "image_term",  "text_term", "lr",
                                                            "grad_norm", "pairs_per_s", "wait",      "inv_tau" };

struct journal {
    bool writes;
    char dir[FILE_PATH], checkpoints[FILE_PATH], results[FILE_PATH]; /* results: checkpoints/results.jsonl */
    int lock;                                                        /* file descriptor; -1: none */
    FILE *log, *metrics, *board;
};

static cloob_status open_log(cloob_ctx *ctx, journal *j, const char *name, FILE **out)
{
    char path[FILE_PATH];
    CLOOB_TRY(file_in(ctx, j->dir, name, path));
    *out = fopen(path, "a");
    return *out ? CLOOB_OK : file_fail(ctx, path, "cannot write");
}

/* A folder from another machine may contain links. Refuses to write through a link that leaves its folder; links to
 * folders are followed. */
static cloob_status refuse_links(cloob_ctx *ctx, const char *folder, int depth)
{
    char path[FILE_PATH], target[PATH_MAX];
    cloob_status status = CLOOB_OK;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && status == CLOOB_OK && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        status = file_in(ctx, folder, e->d_name, path);
        if (status != CLOOB_OK) break;
        ssize_t n = readlink(path, target, sizeof target);
        bool is_folder = file_is_dir(path);
        if (n > 0 && !is_folder && memchr(target, '/', (size_t)n))
            status =
                ctx_fail(ctx, CLOOB_ERR_IO, "%s: a link out of the run's folder is not written to; remove it", path);
        else if (n < 0 && is_folder && depth) status = refuse_links(ctx, path, depth - 1);
    }
    if (d) closedir(d);
    return status;
}

/* Waits briefly, because a process that was just killed may still hold the lock. File systems without locks are
 * accepted. */
static bool try_lock(int f)
{
    for (int i = 0; i < 20; i++) {
        if (flock(f, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return true;
        nanosleep(&(struct timespec){ 0, 50000000 }, NULL);
    }
    return false;
}

/* For the error message of other processes; a full disk is not an error here. */
static void write_lock_owner(int f)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%ld", (long)getpid());
    bool written = ftruncate(f, 0) == 0 && pwrite(f, text, (size_t)n, 0) == n;
    (void)written;
}

static cloob_status take_lock(cloob_ctx *ctx, journal *j)
{
    char owner[32] = "", path[FILE_PATH];
    CLOOB_TRY(file_in(ctx, j->dir, ".lock", path));
    j->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666); /* not inherited: children would keep the lock */
    if (j->lock < 0) return file_fail(ctx, path, "cannot write");
    if (try_lock(j->lock)) {
        write_lock_owner(j->lock);
        return CLOOB_OK;
    }
    if (pread(j->lock, owner, sizeof owner - 1, 0) <= 0) strcpy(owner, "?");
    return ctx_fail(
        ctx, CLOOB_ERR_IO,
        "%s: another process (%s) is training in this folder; wait for it or stop it, or give another `name`", j->dir,
        owner);
}

/* A killed process may leave an incomplete last line. It is removed, so that the next line starts on its own. */
static void remove_partial_line(const char *path)
{
    FILE *f = fopen(path, "r+");
    long end = 0, at = 0;
    for (int c; f && (c = fgetc(f)) != EOF;)
        if (at++, c == '\n') end = at;
    if (f && end < at && ftruncate(fileno(f), end) != 0) clearerr(f); /* readers skip incomplete lines */
    if (f) fclose(f);
}

/* True when the folder has a checkpoint, or a file that no run writes. */
static cloob_status is_taken(cloob_ctx *ctx, const journal *j, bool *taken)
{
    char log[FILE_PATH];
    CLOOB_TRY(file_in(ctx, j->dir, "out.log", log));
    bool run = file_exists(log);
    DIR *d = opendir(run ? j->checkpoints : j->dir);
    *taken = false;
    for (struct dirent *e; d && !*taken && (e = readdir(d));)
        *taken = run ? text_ends_with(e->d_name, ".safetensors") : e->d_name[0] != '.';
    if (d) closedir(d);
    return CLOOB_OK;
}

/* Removes the files of a run that ended before its first checkpoint. */
static cloob_status clear_failed(cloob_ctx *ctx, const journal *j)
{
    static const char *const files[] = { "out.log",       "metrics.tsv",      "params.txt",
                                         "settings.json", "provenance.jsonl", "checkpoints/results.jsonl",
                                         "layers.tsv" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[FILE_PATH];
        CLOOB_TRY(file_in(ctx, j->dir, files[i], path));
        unlink(path);
    }
    return CLOOB_OK;
}

static cloob_status refuse_taken(cloob_ctx *ctx, const journal *j)
{
    bool taken;
    CLOOB_TRY(is_taken(ctx, j, &taken));
    if (!taken) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: a run of this name exists; give another `name`, or `resume` it",
                    j->dir);
}

static bool is_empty(FILE *f) { return fseek(f, 0, SEEK_END) == 0 && ftell(f) == 0; }

static cloob_status make_files(cloob_ctx *ctx, journal *j, journal_mode mode, bool with_board)
{
    char board[FILE_PATH];
    bool exists = mode == JOURNAL_NEW && file_exists(j->dir);
    if (exists) CLOOB_TRY(refuse_taken(ctx, j));
    CLOOB_TRY(file_make_dirs(ctx, j->checkpoints));
    CLOOB_TRY(refuse_links(ctx, j->dir, 3));
    CLOOB_TRY(take_lock(ctx, j));
    if (exists) CLOOB_TRY(clear_failed(ctx, j));
    remove_partial_line(j->results);
    CLOOB_TRY(open_log(ctx, j, "out.log", &j->log));
    CLOOB_TRY(open_log(ctx, j, "metrics.tsv", &j->metrics));
    if (is_empty(j->metrics)) {
        fputs("step\tepoch", j->metrics);
        for (int i = 0; i < JOURNAL_NUMBERS; i++) fprintf(j->metrics, "\t%s", journal_number_names[i]);
        fputc('\n', j->metrics);
    }
    if (!with_board) return CLOOB_OK;
    CLOOB_TRY(file_in(ctx, j->dir, "tensorboard", board));
    CLOOB_TRY(file_make_dirs(ctx, board));
    return tensorboard_open(ctx, board, &j->board);
}

static cloob_status set_paths(cloob_ctx *ctx, journal *j, const char *logs, const char *name)
{
    j->lock = -1;
    CLOOB_TRY(file_in(ctx, logs, name, j->dir));
    CLOOB_TRY(file_in(ctx, j->dir, "checkpoints", j->checkpoints));
    return file_in(ctx, j->checkpoints, "results.jsonl", j->results);
}

cloob_status journal_check_name(cloob_ctx *ctx, const char *logs, const char *name)
{
    journal j;
    CLOOB_TRY(set_paths(ctx, &j, logs, name));
    return file_exists(j.dir) ? refuse_taken(ctx, &j) : CLOOB_OK;
}

cloob_status journal_open(cloob_ctx *ctx, const char *logs, const char *name, journal_mode mode, bool writes,
                          bool board, journal **out)
{
    journal *j = calloc(1, sizeof *j);
    if (!j) return ctx_no_memory(ctx, sizeof *j, "a run's journal");
    j->writes = writes;
    cloob_status status = set_paths(ctx, j, logs, name);
    if (status == CLOOB_OK && writes) status = make_files(ctx, j, mode, board);
    if (status == CLOOB_OK) *out = j;
    else journal_close(j);
    return status;
}

void journal_close(journal *j)
{
    if (!j) return;
    if (j->log) fclose(j->log);
    if (j->metrics) fclose(j->metrics);
    if (j->board) fclose(j->board);
    if (j->lock >= 0) close(j->lock);
    free(j);
}

const char *journal_dir(const journal *j) { return j->dir; }

const char *journal_checkpoints(const journal *j) { return j->checkpoints; }

const char *journal_results(const journal *j) { return j->writes ? j->results : NULL; }

/* A line of out.log: to the file, or to `early` where there is none yet. */
static void log_line(FILE *file, sbuf *early, cloob_log_level level, const char *text)
{
    char when[32];
    time_t now = time(NULL);
    struct tm tm;
    const char *word = level == CLOOB_LOG_WARN ? "WARNING" : "INFO";
    strftime(when, sizeof when, "%Y-%m-%d,%H:%M:%S", localtime_r(&now, &tm));
    if (!file) {
        sbuf_printf(early, "%s | %s | %s\n", when, word, text);
        return;
    }
    fprintf(file, "%s | %s | %s\n", when, word, text);
    fflush(file);
}

static void tee_line(void *user, cloob_log_level level, const char *line)
{
    journal_tee *t = user;
    pthread_mutex_lock(&t->lock);
    if (level >= CLOOB_LOG_INFO) log_line(t->file, &t->early, level, line);
    pthread_mutex_unlock(&t->lock);
    if (t->log && level >= t->level) t->log(t->user, level, line);
}

void journal_tee_begin(cloob_ctx *ctx, journal_tee *t)
{
    *t = (journal_tee){ .log = ctx->log, .user = ctx->log_user, .level = ctx->log_level };
    pthread_mutex_init(&t->lock, NULL);
    ctx->log = tee_line, ctx->log_user = t;
    if (ctx->log_level > CLOOB_LOG_INFO) ctx->log_level = CLOOB_LOG_INFO;
}

void journal_tee_open(journal *j, journal_tee *t)
{
    if (!j->log) return;
    pthread_mutex_lock(&t->lock);
    if (t->early.len) fwrite(t->early.data, 1, t->early.len, j->log);
    t->file = j->log;
    pthread_mutex_unlock(&t->lock);
    sbuf_release(&t->early);
}

void journal_tee_end(cloob_ctx *ctx, journal_tee *t)
{
    if (ctx->log_user != t) return;
    ctx->log = t->log, ctx->log_user = t->user, ctx->log_level = t->level;
    sbuf_release(&t->early);
    pthread_mutex_destroy(&t->lock);
}

void journal_put_line(cloob_ctx *ctx, journal *j, cloob_log_level level, const char *format, ...)
{
    char text[1024];
    va_list args;
    if (!j->writes) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (ctx) ctx_log(ctx, level, "%s", text);
    else log_line(j->log, NULL, level, text);
}

/* ---- settings and results ---------------------------------------------------------------------------------- */

static cloob_status append_line(cloob_ctx *ctx, const char *path, const char *line)
{
    FILE *f = fopen(path, "a");
    bool ok = f && fprintf(f, "%s\n", line) > 0;
    if (f && fclose(f) != 0) ok = false;
    return ok ? CLOOB_OK : file_fail(ctx, path, "cannot write");
}

/* Commands of "pipe:" sources often contain keys and tokens, so then only the owner can read the file. */
static cloob_status write_settings(cloob_ctx *ctx, const journal *j, const char *name, const char *text)
{
    char path[FILE_PATH];
    CLOOB_TRY(file_in(ctx, j->dir, name, path));
    return (strstr(text, "pipe:") ? file_write_private : file_write)(ctx, path, text, strlen(text));
}

cloob_status journal_settings(cloob_ctx *ctx, journal *j, const char *text)
{
    return j->writes ? write_settings(ctx, j, "settings.json", text) : CLOOB_OK;
}

cloob_status journal_provenance(cloob_ctx *ctx, journal *j, const char *line)
{
    char path[FILE_PATH];
    if (!j->writes) return CLOOB_OK;
    CLOOB_TRY(file_in(ctx, j->dir, "provenance.jsonl", path));
    CLOOB_TRY(append_line(ctx, path, line));
    if (!strstr(line, "pipe:") || chmod(path, 0600) == 0) return CLOOB_OK;
    return file_fail(ctx, path, "cannot be made private");
}

cloob_status journal_params(cloob_ctx *ctx, journal *j, const char *text)
{
    if (!j->writes) return CLOOB_OK;
    char *copy = strdup(text), *line[256], *rest = copy;
    size_t n = 0;
    sbuf out = { 0 };
    for (char *l; copy && n < 256 && (l = strsep(&rest, "\n"));)
        if (*l) line[n++] = l;
    qsort(line, n, sizeof *line, order_text);
    for (size_t i = 0; i < n; i++) sbuf_printf(&out, "%s\n", line[i]);
    cloob_status status =
        copy && !out.failed ? write_settings(ctx, j, "params.txt", out.data) : ctx_no_memory(ctx, 1024, "params.txt");
    sbuf_release(&out);
    free(copy);
    return status;
}

cloob_status journal_result(cloob_ctx *ctx, journal *j, const char *line)
{
    return j->writes ? append_line(ctx, j->results, line) : CLOOB_OK;
}

int64_t journal_result_bytes(const journal *j)
{
    struct stat st;
    return j->writes && stat(j->results, &st) == 0 ? (int64_t)st.st_size : 0;
}

/* The epoch at the end of a line of results; -1: none. */
static int64_t epoch_of(const char *line)
{
    const char *at = NULL, *mark = "\"epoch\": ";
    for (const char *p = line; (p = strstr(p, mark)); p++) at = p;
    return at ? strtoll(at + strlen(mark), NULL, 10) : -1;
}

cloob_status journal_drop_results(cloob_ctx *ctx, journal *j, int64_t last, int64_t behind)
{
    file_bytes all;
    sbuf kept = { 0 };
    if (!j->writes || behind < 0 || journal_result_bytes(j) <= behind) return CLOOB_OK;
    cloob_status status = file_read(ctx, j->results, FILE_TEXT_LIMIT, &all);
    if (status == CLOOB_OK) {
        char *rest = all.data + behind;
        sbuf_add(&kept, all.data, (size_t)behind);
        for (char *line; (line = strsep(&rest, "\n"));)
            if (*line && epoch_of(line) <= last) sbuf_printf(&kept, "%s\n", line);
        if (kept.failed) status = ctx_no_memory(ctx, all.size, "results.jsonl");
        else if (kept.len != all.size) status = file_write(ctx, j->results, kept.data ? kept.data : "", kept.len);
        file_bytes_release(&all);
    }
    sbuf_release(&kept);
    return status;
}

cloob_status journal_has_result(cloob_ctx *ctx, const journal *j, int64_t epoch, int64_t behind, bool *out)
{
    file_bytes all;
    *out = false;
    if (!j->writes || journal_result_bytes(j) <= behind) return CLOOB_OK;
    CLOOB_TRY(file_read(ctx, j->results, FILE_TEXT_LIMIT, &all));
    char *rest = all.data + behind;
    for (char *line; !*out && (line = strsep(&rest, "\n"));) *out = epoch_of(line) == epoch;
    file_bytes_release(&all);
    return CLOOB_OK;
}

void journal_metrics(journal *j, const journal_row *r)
{
    if (!j->writes) return;
    fprintf(j->metrics, "%lld\t%lld", (long long)r->step, (long long)r->epoch);
    for (int i = 0; i < JOURNAL_NUMBERS; i++) fprintf(j->metrics, "\t%.9g", r->number[i]);
    fputc('\n', j->metrics);
    fflush(j->metrics);
}

void journal_scalar(journal *j, const char *tag, int64_t step, double value)
{
    if (j->board) tensorboard_scalar(j->board, tag, step, value);
}

void journal_put(journal *j, json_out *line, int64_t epoch, const char *name, double value)
{
    char tag[96];
    json_put_number(line, name, value);
    snprintf(tag, sizeof tag, "val/%s", name);
    journal_scalar(j, tag, epoch, value);
}

/* ---- norms of every parameter's weights, gradient and update, in layers.tsv ------------------------- */

struct layer_norms {
    params *p;
    FILE *out;
    float *before, *after, *grad; /* (trainable) host memory */
};

cloob_status layer_norms_create(cloob_ctx *ctx, journal *j, params *p, layer_norms **out)
{
    layer_norms *l = calloc(1, sizeof *l);
    size_t bytes = (size_t)p->trainable * sizeof(float);
    if (l) *l = (layer_norms){ p, NULL, malloc(bytes), malloc(bytes), malloc(bytes) };
    bool room = l && l->before && l->after && l->grad;
    cloob_status status = room ? open_log(ctx, j, "layers.tsv", &l->out) : ctx_no_memory(ctx, 3 * bytes, "norms");
    if (status == CLOOB_OK && is_empty(l->out)) fputs("step\tparameter\tweight\tgradient\tupdate\n", l->out);
    if (status == CLOOB_OK) *out = l;
    else layer_norms_destroy(l);
    return status;
}

void layer_norms_destroy(layer_norms *l)
{
    if (!l) return;
    if (l->out) fclose(l->out);
    free(l->before), free(l->after), free(l->grad);
    free(l);
}

static cloob_status copy(cloob_ctx *ctx, const params *p, const float *from, float *to)
{
    return p->dev->to_host(ctx, p->dev, to, from, (size_t)p->trainable * sizeof(float));
}

cloob_status layer_norms_before(cloob_ctx *ctx, layer_norms *l) { return copy(ctx, l->p, l->p->master, l->before); }

cloob_status layer_norms_after(cloob_ctx *ctx, layer_norms *l, int64_t number, double factor)
{
    CLOOB_TRY(copy(ctx, l->p, l->p->master, l->after));
    CLOOB_TRY(copy(ctx, l->p, l->p->grad, l->grad));
    for (const param *r = l->p->row; r < l->p->row + l->p->count; r++) {
        double weight = 0, gradient = 0, update = 0;
        if (r->buffer || r->frozen) continue;
        for (int64_t i = r->offset; i < r->offset + r->count; i++) {
            double moved = (double)l->after[i] - (double)l->before[i];
            weight += (double)l->after[i] * (double)l->after[i];
            gradient += (double)l->grad[i] * (double)l->grad[i];
            update += moved * moved;
        }
        fprintf(l->out, "%lld\t%s\t%.9g\t%.9g\t%.9g\n", (long long)number, r->name, sqrt(weight),
                factor * sqrt(gradient), sqrt(update));
    }
    fflush(l->out);
    return CLOOB_OK;
}
