/* Combines the options of a command into one list, and parses the command line. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "hub/hub.h"
#include "train/settings.h"

opt_common common;
opt_list opt_words;

static const opt_row common_rows[] = {
    { "device", OPT_STRING, &common.device, "auto", "DEVICE", "auto, cpu, cuda, cuda:N or ref", 0 },
    { "precision", OPT_STRING, &common.precision, NULL, "auto|fp32|bf16|f16|int8|fp8|amp_bf16",
      "compute precision; f16: matrices rounded to half precision, computed in fp32; int8: on a CPU; fp8: on a GPU; "
      "auto: the fastest whose embeddings have a mean cosine of 0.999 with those of fp32",
      0 },
    { "threads", OPT_INT, &common.threads, "0", "N", "CPU threads; 0: all cores", OPT_NOT_NEGATIVE },
    { "seed", OPT_INT, &common.seed, "0", "N", "random seed", OPT_NOT_NEGATIVE },
    { "quiet", OPT_FLAG, &common.quiet, NULL, NULL, "no progress on stderr", 0 },
    { "json", OPT_FLAG, &common.json, NULL, NULL, "print one JSON object instead of text", 0 },
    OPT_END,
};

/* Formats a message into `text`. */
#define MESSAGE(text, format)                                                                                          \
    char text[4096];                                                                                                   \
    va_list args;                                                                                                      \
    va_start(args, format);                                                                                            \
    vsnprintf(text, sizeof text, format, args);                                                                        \
    va_end(args)

int cli_usage(const command *c, const char *format, ...)
{
    MESSAGE(text, format);
    size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, " (cloob help %s explains)", c->name);
    progress_error(c->name, text);
    return 2;
}

int cli_error(const command *c, const char *format, ...)
{
    MESSAGE(text, format);
    progress_error(c ? c->name : NULL, text);
    return 1;
}

void cli_print(const char *prefix, const char *format, ...)
{
    MESSAGE(text, format);
    progress_log(prefix, text);
}

/* ---- one list ------------------------------------------------------------------------------------ */

enum { MAX_ENTRIES = 256 };
static opt_entry entries[MAX_ENTRIES];
static int entry_count;

/* Finds an option by name or alias; with `fields`, also by the member of the library's struct. */
static opt_entry *find_by(const char *name, size_t n, bool fields)
{
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)n, name);
    for (int i = 0; i < entry_count; i++) {
        option_desc o = entries[i].o;
        if (!fields) o.field = NULL;
        if (option_find(&o, 1, word)) return &entries[i];
    }
    return NULL;
}

static opt_entry *find(const char *name, size_t n) { return find_by(name, n, false); }

/* "batch_size" as "batch-size". */
static char *dashed(const char *name, char *out, size_t size)
{
    if (name != out) snprintf(out, size, "%s", name);
    for (char *c = out; *c; c++)
        if (*c == '_') *c = '-';
    return out;
}

static void add(const option_desc *o, void *into, opt_list *list, int flags)
{
    /* a command's own row replaces that of a set */
    if (entry_count == MAX_ENTRIES || find(o->name, strlen(o->name))) return;
    opt_entry *e = &entries[entry_count++];
    *e = (opt_entry){ .o = *o, .into = into, .list = list, .flags = flags };
    dashed(o->name, e->flag, sizeof e->flag);
    if (strcmp(e->flag, "batch-size") == 0) e->o.alias = "batch"; /* former name in some commands */
    if (strcmp(e->flag, "checkpoint") == 0) e->o.alias = "model"; /* name in other programs */
}

/* Adds a command's own row, converted to the form of the library's tables. */
static void add_row(const opt_row *r, const char *group, int flags)
{
    static const option_type type[] = { OPTION_FLAG, OPTION_INT, OPTION_NUMBER, OPTION_STRING, OPTION_LIST };
    bool whole = r->kind == OPT_INT;
    const char *range = r->flags & OPT_PORT           ? "[0,65535]"
                        : r->flags & OPT_POSITIVE     ? (whole ? "[1,1e15]" : "(0,)")
                        : r->flags & OPT_NOT_NEGATIVE ? (whole ? "[0,1e15]" : "[0,)")
                                                      : (whole ? "[-1e15,1e15]" : NULL);
    option_desc o = { .name = r->name,
                      .field = r->name,
                      .type = type[r->kind],
                      .fallback = r->fallback,
                      .range = range,
                      .values = r->metavar,
                      .group = group,
                      .help = r->help };
    add(&o, r->value, r->kind == OPT_LIST ? r->value : NULL, r->flags | flags);
}

static void add_set(const opt_set *s)
{
    int64_t n;
    const option_desc *table = s->table(&n);
    for (int64_t i = 0; i < n; i++) {
        const char *name = table[i].name;
        int flags = text_has_word(s->required, name)             ? OPT_REQUIRED
                    : s->shown && !text_has_word(s->shown, name) ? OPT_HIDDEN
                                                                 : 0;
        if (!s->only || text_has_word(s->only, name)) add(&table[i], s->into, NULL, flags);
    }
}

static bool is_shown(const command *c, const char *name)
{
    if (strcmp(name, "seed") == 0) return c->uses & USES_SEED;
    if (strcmp(name, "precision") == 0) return c->uses & USES_PRECISION;
    return true;
}

opt_entry *opt_entries(const command *c, int *count)
{
    entry_count = 0;
    for (const opt_row *r = c->options; r && r->name; r++) add_row(r, "options", 0);
    for (const opt_set *s = c->sets; s && s->table; s++) add_set(s);
    for (const opt_row *r = common_rows; r->name; r++)
        add_row(r, "common options", is_shown(c, r->name) ? 0 : OPT_HIDDEN);
    *count = entry_count;
    return entries;
}

bool opt_given(const char *name)
{
    const opt_entry *e = find(name, strlen(name));
    return e && e->given;
}

/* The flag of a `field` of cloob train, whose options are also named in messages about runs (cloob compare). NULL:
 * none. */
static const char *train_option(const char *name, size_t length)
{
    char word[64];
    int64_t n;
    const option_desc *table = train_option_table(&n);
    snprintf(word, sizeof word, "%.*s", (int)length, name);
    const option_desc *o = option_find(table, n, word);
    return o ? o->name : NULL;
}

void opt_with_flags(const char *text, char *out, size_t size)
{
    size_t n = 0;
    while (*text && n + 1 < size) {
        const char *end = *text == '`' ? strchr(text + 1, '`') : NULL;
        size_t length = end ? (size_t)(end - text - 1) : 0;
        const opt_entry *e = end ? find(text + 1, length) : NULL;
        if (end && !e) e = find_by(text + 1, length, true);
        const char *name = e ? e->o.name : end ? train_option(text + 1, length) : NULL;
        if (!name) {
            out[n++] = *text++;
            continue;
        }
        char flag[48];
        n += (size_t)snprintf(out + n, size - n, "--%s", dashed(name, flag, sizeof flag));
        if (n >= size) n = size - 1;
        text = end + 1;
    }
    out[n] = '\0';
}

/* ---- values -------------------------------------------------------------------------------------- */

/* Appends a word. Words are kept until the process ends; lists stay reachable from entries and opt_words, so leak
 * checkers do not report them. */
void opt_list_add(opt_list *l, const char *word)
{
    l->item = must(realloc(l->item, (size_t)(l->count + 1) * sizeof *l->item));
    l->item[l->count++] = word;
}

/* Names and values of other programs; of several rows the first that the option accepts. Training has no fp16: bf16
 * needs no loss scaling. */
static const struct {
    const char *word, *meant;
} of_other_programs[] = {
    { "learning-rate", "lr" },
    { "weight-decay", "wd" },
    { "num-epochs", "epochs" },
    { "num-train-epochs", "epochs" },
    { "num-workers", "workers" },
    { "bs", "batch-size" },
    { "gpu", "device" },
    { "gpus", "device" },
    { "output", "out" },
    { "output-dir", "logs" },
    { "data", "train-data" },
    { "image-size", "force-image-size" },
    { "warmup-steps", "warmup" },
    { "gradient-accumulation-steps", "accum-freq" },
    { "top-k", "n" },
    { "amp", "amp_bf16" },
    { "amp_fp16", "amp_bf16" },
    { "f16", "amp_bf16" },
    { "fp16", "amp_bf16" },
    { "float16", "f16" },
    { "float16", "amp_bf16" },
    { "half", "f16" },
    { "half", "amp_bf16" },
    { "bfloat16", "bf16" },
    { "float32", "fp32" },
};

/* Translates a name, or a value of e, from another program; NULL: unknown. */
static const char *translate(const char *word, const opt_entry *e)
{
    for (size_t i = 0; i < sizeof of_other_programs / sizeof *of_other_programs; i++) {
        const char *meant = of_other_programs[i].meant;
        bool fits = !e || (option_has_choices(&e->o) && option_is_choice(&e->o, meant));
        if (fits && strcmp(of_other_programs[i].word, word) == 0) return meant;
    }
    return NULL;
}

static int assign(const command *c, const opt_entry *e, const char *text)
{
    char must[256];
    if (e->o.type == OPTION_LIST) {
        opt_list_add(e->list ? e->list : (void *)((char *)e->into + e->o.offset), text);
        return -1;
    }
    if (option_set(&e->o, e->into, text)) return -1;
    if (strcmp(text, "fp16") == 0 && option_set(&e->o, e->into, "f16")) return -1; /* an alias */
    option_rule(&e->o, must, sizeof must);
    const char *hint = translate(text, e);
    return cli_usage(c, "--%s %s: %s%s%s%s", e->flag, text, must, hint ? "; did you mean " : "", hint ? hint : "",
                     hint ? "?" : "");
}

static void set_defaults(void)
{
    for (int i = 0; i < entry_count; i++) {
        if (entries[i].list) *entries[i].list = (opt_list){ 0 };
        else option_defaults(&entries[i].o, 1, entries[i].into);
    }
}

/* ---- the command line ---------------------------------------------------------------------------- */

int opt_distance(const char *a, const char *b)
{
    int row[64], n = (int)strlen(b);
    if (n > 62) return 99;
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; *a; a++, i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int cost = diagonal + (*a != b[j - 1]), up = row[j];
            int best = up + 1 < row[j - 1] + 1 ? up + 1 : row[j - 1] + 1;
            diagonal = up;
            row[j] = best < cost ? best : cost;
        }
    }
    return row[n];
}

/* Distance of a mistyped word from a flag: the edit distance, or at most 2 if one is a prefix of the other. */
static int flag_distance(const char *word, const char *flag)
{
    enum { WORTH = 4 }; /* shortest prefix that gives a hint */
    size_t a = strlen(word), b = strlen(flag), n = a < b ? a : b;
    int d = opt_distance(word, flag);
    return n >= WORTH && strncmp(word, flag, n) == 0 && d > 2 ? 2 : d < (int)a ? d : 99;
}

static int unknown(const command *c, const char *word)
{
    const char *best = NULL;
    char name[64];
    int min = 4;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    const char *meant = translate(dashed(name, name, sizeof name), NULL);
    for (int i = 0; i < entry_count; i++) {
        int d = meant && strcmp(meant, entries[i].flag) == 0 ? 0 : flag_distance(name, entries[i].flag);
        if (d < min) min = d, best = entries[i].flag;
    }
    if (best) return cli_usage(c, "unknown option %s; did you mean --%s?", word, best);
    return cli_usage(c, "unknown option %s", word);
}

static bool is_option(const char *word) { return strncmp(word, "--", 2) == 0 && word[2]; }

/* Whether the word is a short option such as "-n", which stands for the one-letter option --n of the command. */
static bool is_letter(const char *word)
{
    return word[0] == '-' && word[1] && word[1] != '-' && !word[2] && find(word + 1, 1);
}

static bool takes_more(int argc, char **argv, int i)
{
    return i < argc && !is_option(argv[i]) && strcmp(argv[i], "--") != 0;
}

/* Parses several numbers, given as one word with commas or as several words. */
static int parse_numbers(const command *c, const opt_entry *e, int argc, char **argv, int *i)
{
    char text[256];
    int n = snprintf(text, sizeof text, "%s", argv[(*i)++]);
    while (!option_set(&e->o, e->into, text)) {
        if (!takes_more(argc, argv, *i) || n >= (int)sizeof text) return assign(c, e, text);
        n += snprintf(text + n, sizeof text - (size_t)n, " %s", argv[(*i)++]);
    }
    return -1;
}

static int parse_value(const command *c, const opt_entry *e, int argc, char **argv, int *i)
{
    bool numbers = e->o.type == OPTION_NUMBERS_3 || e->o.type == OPTION_NUMBERS_4;
    if (*i >= argc) return cli_usage(c, "--%s needs a value (%s)", e->flag, e->o.values ? e->o.values : "VALUE");
    if (numbers) return parse_numbers(c, e, argc, argv, i);
    int code = assign(c, e, argv[(*i)++]);
    while (code < 0 && e->o.type == OPTION_LIST && takes_more(argc, argv, *i)) code = assign(c, e, argv[(*i)++]);
    return code;
}

/* Parses the option at argv[*i], and moves *i behind its value. */
static int parse_option(const command *c, int argc, char **argv, int *i)
{
    const char *word = argv[(*i)++], *name = word + (word[1] == '-' ? 2 : 1), *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    opt_entry *e = find(name, n);
    bool off = false;
    if (!e && strncmp(name, "no-", 3) == 0 && (e = find(name + 3, n - 3))) {
        off = e->o.type == OPTION_FLAG && !equals;
        if (!off) e = NULL;
    }
    if (!e) return unknown(c, word);
    e->given = true;
    if (e->o.type != OPTION_FLAG) return equals ? assign(c, e, equals + 1) : parse_value(c, e, argc, argv, i);
    if (equals) return cli_usage(c, "--%s takes no value", e->flag);
    return assign(c, e, off ? "False" : "True");
}

static int check_required(const command *c)
{
    for (int i = 0; i < entry_count; i++) {
        const opt_entry *e = &entries[i];
        if ((e->flags & OPT_REQUIRED) && !e->given)
            return cli_usage(c, "--%s %s is needed: %s", e->flag, e->o.values ? e->o.values : "VALUE", e->o.help);
    }
    return -1;
}

/* An invalid device is wrong usage, even in a command that does not compute. */
static int check_device(const command *c)
{
    const opt_entry *e = find("device", 6);
    const char *name = e ? *(const char *const *)((const char *)e->into + e->o.offset) : NULL;
    if (!e || !e->given || !name || text_has_word("auto cpu cuda ref", name)) return -1;
    bool number = strncmp(name, "cuda:", 5) == 0 && name[5] && strlen(name) < 9;
    if (number && strspn(name + 5, "0123456789") == strlen(name + 5)) return -1;
    return cli_usage(c, "--device %s: choose auto, cpu, cuda, cuda:N or ref", name);
}

/* Reports a positional word in a command that takes none; it is probably the value of an option. */
static int refuse_word(const command *c, const char *word)
{
    if (c->stray[0] != '-') return cli_usage(c, "%s: %s", word, c->stray);
    return cli_usage(c, "%s: unexpected argument; did you mean %s %s?", word, c->stray, word);
}

/* Sets defaults and parses argv[1..]. Returns -1, or the exit code. */
static int parse(const command *c, int argc, char **argv)
{
    int count;
    opt_entries(c, &count);
    set_defaults();
    for (int i = 1; i < argc;) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return help_command(c, argc - i - 1, argv + i + 1);
        if (strcmp(argv[i], "--") == 0) {
            for (i++; i < argc; i++) opt_list_add(&opt_words, argv[i]);
        } else if (is_option(argv[i]) || is_letter(argv[i])) {
            int code = parse_option(c, argc, argv, &i);
            if (code >= 0) return code;
        } else opt_list_add(&opt_words, argv[i++]);
    }
    if (c->stray && opt_words.count) return refuse_word(c, opt_words.item[0]);
    int code = check_device(c);
    return code < 0 ? check_required(c) : code;
}

/* ---- models by name ------------------------------------------------------------------------------ */

cloob_status opt_model_path(cloob_ctx *ctx, const char **word)
{
    static opt_list paths; /* kept until the process ends */
    char path[HUB_PATH];
    CLOOB_TRY(cloob_hub_path(ctx, *word, true, path, sizeof path));
    if (strcmp(path, *word) == 0) return CLOOB_OK;
    opt_list_add(&paths, *word = must(strdup(path)));
    return CLOOB_OK;
}

/* Replaces names of models by paths, in all options with the placeholder M; downloads models that are not in the
 * cache. */
static cloob_status find_models(cloob_ctx *ctx)
{
    for (int i = 0; i < entry_count; i++) {
        opt_entry *e = &entries[i];
        if (!e->given || !e->o.values || strcmp(e->o.values, "M") != 0) continue;
        for (int k = 0; e->list && k < e->list->count; k++) CLOOB_TRY(opt_model_path(ctx, &e->list->item[k]));
        if (!e->list) CLOOB_TRY(opt_model_path(ctx, (const char **)(void *)((char *)e->into + e->o.offset)));
    }
    return CLOOB_OK;
}

/* The name of the subcommand that a mistyped word is closest to; NULL: none is close. */
static const char *nearest_part(const command *c, const char *word)
{
    const char *best = NULL;
    int nearest = 4;
    for (int i = 0; c->parts[i]; i++) {
        const char *name = c->parts[i]->name + strlen(c->name) + 1;
        int d = opt_distance(word, name);
        if (d < nearest && d < (int)strlen(word)) nearest = d, best = name;
    }
    return best;
}

/* Reports a missing or unknown subcommand. */
static int choose_part(const command *c)
{
    char names[256] = "";
    size_t n = 0, prefix = strlen(c->name) + 1;
    for (int i = 0; c->parts[i] && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", c->parts[i]->name + prefix);
    const char *word = opt_words.count ? opt_words.item[0] : NULL, *near = word ? nearest_part(c, word) : NULL;
    if (near) return cli_usage(c, "%s: unknown; did you mean %s?", word, near);
    if (word) return cli_usage(c, "%s: unknown; choose from %s", word, names);
    return cli_usage(c, "needs one of %s", names);
}

int command_run(const command *c, int argc, char **argv)
{
    size_t prefix = strlen(c->name) + 1; /* the name of a subcommand includes the command: "bench data" */
    for (int i = 0; argc > 1 && c->parts && c->parts[i]; i++)
        if (strcmp(c->parts[i]->name + prefix, argv[1]) == 0) return command_run(c->parts[i], argc - 1, argv + 1);
    int code = parse(c, argc, argv);
    if (code < 0 && c->parts) code = choose_part(c);
    if (code < 0 && c->check) code = c->check(c);
    if (code >= 0) return code;
    cloob_ctx *ctx = cli_context(c->terse ? CLOOB_LOG_WARN : CLOOB_LOG_INFO);
    cloob_status status = find_models(ctx);
    code = status == CLOOB_OK ? c->run(c, ctx) : cli_fail(c, ctx, status);
    cloob_ctx_destroy(ctx);
    return code;
}
