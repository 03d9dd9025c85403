/* The progress line, redrawn at most ten times per second. */
#include "cli/cli.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/limits.h"
#include "core/text.h"

#define REDRAW_SECONDS 0.1
#define PLAIN_SECONDS  10.0 /* interval of lines if stderr is not a terminal */
#define PLAIN_FIRST    1.0  /* delay of the first such line, so that short tasks print nothing */
#define RATE_SECONDS   5.0  /* time constant of the averaged rate */

enum { LINE_BYTES = 1024, MIN_WIDTH = 20, MAX_BAR = 30, PLAIN_WIDTH = 80 };

typedef enum mode { SILENT, PLAIN, REDRAWN } mode;

/* State of the current task. */
typedef struct shown {
    char task[64], line[LINE_BYTES];
    double began, drawn;        /* start of the task and time of the last drawing; 0: never */
    double mark_time, rate;     /* time of the last update of the rate; units per second, smoothed */
    int64_t mark_done, started; /* `done` at the last update of the rate; at the first report, 0 unless resumed */
    bool visible;
} shown;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mode how = SILENT;
static bool colour, plain_bar;
static shown now_shown;

const char *progress_name(const char *name)
{
    static char clean[PATH_MAX];
    if (!isatty(STDOUT_FILENO)) return name;
    snprintf(clean, sizeof clean, "%s", name);
    for (unsigned char *c = (unsigned char *)clean; *c; c++) {
        if (*c < ' ' || *c == 0x7f) *c = '?';
        if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) c[0] = c[1] = '?'; /* C1 control characters */
    }
    return clean;
}

bool progress_utf8(void)
{
    const char *names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *v = getenv(names[i]);
        if (v && *v) return strstr(v, "UTF-8") || strstr(v, "utf8") || strstr(v, "UTF8");
    }
    return false;
}

void progress_begin(bool quiet)
{
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    bool dumb = !term || strcmp(term, "dumb") == 0;
    how = quiet ? SILENT : isatty(STDERR_FILENO) && !dumb ? REDRAWN : PLAIN;
    colour = isatty(STDERR_FILENO) && !dumb && !(no_colour && *no_colour);
    plain_bar = !progress_utf8();
}

int progress_columns(int fd)
{
    struct winsize w;
    if (ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0) return w.ws_col;
    const char *columns = getenv("COLUMNS");
    return columns && atoi(columns) > 0 ? atoi(columns) : 80;
}

/* ---- the parts of a line ------------------------------------------------------------------------- */

static void put_time(char out[32], double s)
{
    long long t = s > 0 ? (long long)(s + 0.5) : 0;
    if (t >= 3600) snprintf(out, 32, "%lld:%02lld:%02lld", t / 3600, t / 60 % 60, t % 60);
    else snprintf(out, 32, "%lld:%02lld", t / 60, t % 60);
}

static void put_rate(char out[64], double rate, const char *unit)
{
    char n[32];
    if (rate >= 100) snprintf(out, 64, "%s %s/s", text_grouped(n, (int64_t)(rate + 0.5)), unit);
    else if (rate >= 1) snprintf(out, 64, "%.1f %s/s", rate, unit);
    else if (rate > 0) snprintf(out, 64, "%.1f s/%s", 1 / rate, unit);
    else out[0] = '\0';
}

static void put_bar(char *out, size_t size, double share, int width)
{
    const char *full = plain_bar ? "#" : "━", *empty = plain_bar ? "." : "╌";
    size_t at = 0;
    int filled = (int)(share * width + 0.5);
    out[0] = '\0';
    for (int i = 0; i < width && at + 12 < size; i++) {
        if (colour && i == 0) at += (size_t)snprintf(out + at, size - at, "\033[36m");
        if (colour && i == filled) at += (size_t)snprintf(out + at, size - at, "\033[2m");
        at += (size_t)snprintf(out + at, size - at, "%s", i < filled ? full : empty);
    }
    if (colour) snprintf(out + at, size - at, "\033[0m");
}

/* Formats the amount done and the total: "3,720/6,000", "12.5/605.2 MB". */
static void put_amount(char *out, size_t size, const cloob_progress *p, bool bytes)
{
    char done[32], total[32];
    if (bytes && p->total > 0) snprintf(out, size, "%.1f/%.1f MB", (double)p->done / 1e6, (double)p->total / 1e6);
    else if (bytes) snprintf(out, size, "%.1f MB", (double)p->done / 1e6);
    else if (p->total > 0) snprintf(out, size, "%s/%s", text_grouped(done, p->done), text_grouped(total, p->total));
    else snprintf(out, size, "%s %s", text_grouped(done, p->done), p->unit);
}

/* Formats the text around the bar: the task on the left, numbers on the right, most important first. Numbers are
 * dropped from the end until the line fits. Returns the number of columns. */
static int put_numbers(char *out, size_t size, const cloob_progress *p, const shown *s, int columns)
{
    char part[5][96] = { "", "", "", "", "" };
    bool bytes = strcmp(p->unit, "bytes") == 0;
    if (p->total > 0) {
        double share = (double)p->done / (double)p->total;
        snprintf(part[0], sizeof part[0], "%3d%%", (int)(100 * share));
        if (s->rate > 0) {
            char left[32];
            put_time(left, (double)(p->total - p->done) / s->rate);
            snprintf(part[1], sizeof part[1], "%s left", left);
        }
    }
    put_amount(part[p->total > 0 ? 3 : 0], sizeof part[0], p, bytes);
    if (p->note) snprintf(part[2], sizeof part[2], "%s", p->note);
    if (bytes) put_rate(part[4], s->rate / 1e6, "MB");
    else put_rate(part[4], s->rate * (double)(p->per_unit > 0 ? p->per_unit : 1), p->items ? p->items : p->unit);
    int used = 0;
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < 5; i++) {
        int n = (int)strlen(part[i]);
        if (!n || used + n + 2 > columns) continue;
        at += (size_t)snprintf(out + at, size - at, "  %s", part[i]);
        used += n + 2;
    }
    return used;
}

static void compose(char out[LINE_BYTES], const cloob_progress *p, const shown *s, int width)
{
    char numbers[512], bar[512] = "";
    int task = (int)strlen(p->task);
    int columns = put_numbers(numbers, sizeof numbers, p, s, width - 1 - task);
    int left = width - 1 - task - columns - 2;
    if (p->total > 0 && left >= 5)
        put_bar(bar, sizeof bar, (double)p->done / (double)p->total, left < MAX_BAR ? left : MAX_BAR);
    snprintf(out, LINE_BYTES, "%s%s%s%s", p->task, bar[0] ? "  " : "", bar, numbers);
}

/* ---- drawing ------------------------------------------------------------------------------------- */

static void erase(void)
{
    if (now_shown.visible) fputs("\r\033[K", stderr), fflush(stderr);
    now_shown.visible = false;
}

static void draw(void)
{
    fprintf(stderr, "\r%s\033[K", now_shown.line);
    fflush(stderr);
    now_shown.visible = true;
}

static void measure(shown *s, const cloob_progress *p, double t)
{
    if (strcmp(s->task, p->task) != 0 || p->done < s->mark_done) {
        erase();
        *s = (shown){ .began = t, .mark_time = t, .mark_done = p->done, .started = p->done };
        snprintf(s->task, sizeof s->task, "%s", p->task);
        return;
    }
    double passed = t - s->mark_time, all = t - s->began;
    if (all > 0 && all < RATE_SECONDS) {
        s->rate = (double)(p->done - s->started) / all;
    } else if (passed >= RATE_SECONDS / 5) {
        double recent = (double)(p->done - s->mark_done) / passed, weight = passed / RATE_SECONDS;
        s->rate += (recent - s->rate) * (weight < 1 ? weight : 1);
        s->mark_time = t;
        s->mark_done = p->done;
    }
}

static bool is_due(const shown *s, double t, bool last)
{
    if (how == REDRAWN) return !s->drawn || last || t - s->drawn >= REDRAW_SECONDS;
    if (!s->drawn) return t - s->began >= PLAIN_FIRST && !last;
    return last || t - s->drawn >= PLAIN_SECONDS;
}

void progress_show(void *user, const cloob_progress *p)
{
    (void)user;
    if (how == SILENT) return;
    pthread_mutex_lock(&lock);
    double t = clock_seconds();
    measure(&now_shown, p, t);
    bool last = p->total > 0 && p->done >= p->total;
    if (is_due(&now_shown, t, last)) {
        int width = how == PLAIN ? PLAIN_WIDTH : progress_columns(STDERR_FILENO);
        compose(now_shown.line, p, &now_shown, width < MIN_WIDTH ? MIN_WIDTH : width);
        if (how == REDRAWN) draw();
        else fprintf(stderr, "%s\n", now_shown.line);
        now_shown.drawn = t;
        if (last && how == REDRAWN) erase();
    }
    pthread_mutex_unlock(&lock);
}

/* Prints the rest of a line from column `at`. On a terminal, a long line continues on the next one, indented by two
 * columns. */
static void put_line(const char *line, int at)
{
    enum { INDENT = 2 };
    int width = isatty(STDERR_FILENO) ? progress_columns(STDERR_FILENO) : INT_MAX;
    for (bool first = true; *line; first = false) {
        size_t n = strcspn(line, " ");
        if (!first && at + 1 + (int)n >= width) at = fprintf(stderr, "\n%*s", INDENT, "") - 1;
        else if (!first) at += fprintf(stderr, " ");
        at += fprintf(stderr, "%.*s", (int)n, line);
        line += n + (line[n] == ' ');
    }
    fputc('\n', stderr);
}

void progress_log(const char *prefix, const char *line)
{
    pthread_mutex_lock(&lock);
    bool was = now_shown.visible;
    erase();
    put_line(line, fprintf(stderr, "%s", prefix));
    if (was) draw();
    pthread_mutex_unlock(&lock);
}

void progress_end(void)
{
    pthread_mutex_lock(&lock);
    if (how == REDRAWN) erase();
    pthread_mutex_unlock(&lock);
}

void progress_error(const char *name, const char *text)
{
    progress_end();
    put_line(text, name ? fprintf(stderr, "cloob %s: ", name) : fprintf(stderr, "cloob: "));
}
