/* Parsing and help from option tables. */
#include "cli/opt.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

opt_common common;

const opt_row opt_common_rows[] = {
    { "device", OPT_STRING, &common.device, "auto", "DEVICE", "auto, cpu, cuda, cuda:N or ref", 0 },
    { "precision", OPT_STRING, &common.precision, NULL, "amp_bf16|bf16|fp16|fp32", "compute precision", 0 },
    { "threads", OPT_INT, &common.threads, "0", "N", "CPU threads; 0: all cores", OPT_NOT_NEGATIVE },
    { "seed", OPT_INT, &common.seed, "0", "N", "seed of everything random", OPT_NOT_NEGATIVE },
    { "quiet", OPT_FLAG, &common.quiet, NULL, NULL, "no progress on stderr", 0 },
    { "json", OPT_FLAG, &common.json, NULL, NULL, "print one JSON object instead of text", 0 },
    OPT_END,
};

enum { MAX_GIVEN = 256 };
static const char *given[MAX_GIVEN];
static int given_count;

bool opt_given(const char *name)
{
    for (int i = 0; i < given_count; i++)
        if (strcmp(given[i], name) == 0) return true;
    return false;
}

int cli_usage(const command *c, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "cloob %s: ", c->name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, " (cloob help %s explains)\n", c->name);
    return 2;
}

/* ---- values -------------------------------------------------------------------------------------- */

static bool parse_int(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end) return false;
    *out = v;
    return true;
}

static bool parse_double(const char *text, double *out)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v)) return false;
    *out = v;
    return true;
}

static bool in_choice(const char *choices, const char *word)
{
    size_t n = strlen(word);
    for (const char *c = choices; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL)
        if (strncmp(c, word, n) == 0 && (c[n] == '|' || c[n] == '\0')) return true;
    return false;
}

/* "a|b|c" in lower case is a list of all there is; with capitals it only describes. */
static bool is_choice(const char *metavar)
{
    if (!metavar || !strchr(metavar, '|')) return false;
    for (const char *c = metavar; *c; c++)
        if (*c >= 'A' && *c <= 'Z') return false;
    return true;
}

static bool list_add(opt_list *l, const char *word)
{
    const char **item = realloc(l->item, (size_t)(l->count + 1) * sizeof *item);
    if (!item) return false;
    l->item = item;
    l->item[l->count++] = word;
    return true;
}

/* Positional words live as long as the process; kept reachable, so that a leak check sees no leak. */
static const char **positional;

static void positional_add(opt_list *rest, const char *word)
{
    list_add(rest, word);
    positional = rest->item;
}

static bool out_of_range(const opt_row *r, double v)
{
    return ((r->flags & OPT_POSITIVE) && v <= 0) || ((r->flags & OPT_NOT_NEGATIVE) && v < 0);
}

static int assign(const command *c, const opt_row *r, const char *text)
{
    const char *sign = r->flags & OPT_POSITIVE ? " above 0" : r->flags & OPT_NOT_NEGATIVE ? " of 0 or more" : "";
    switch (r->kind) {
    case OPT_FLAG: *(bool *)r->value = true; return -1;
    case OPT_INT:
        if (parse_int(text, r->value) && !out_of_range(r, (double)*(int64_t *)r->value)) return -1;
        return cli_usage(c, "--%s %s: needs a whole number%s", r->name, text, sign);
    case OPT_DOUBLE:
        if (parse_double(text, r->value) && !out_of_range(r, *(double *)r->value)) return -1;
        return cli_usage(c, "--%s %s: needs a number%s", r->name, text, sign);
    case OPT_STRING:
        if (is_choice(r->metavar) && !in_choice(r->metavar, text))
            return cli_usage(c, "--%s %s: choose one of %s", r->name, text, r->metavar);
        *(const char **)r->value = text;
        return -1;
    case OPT_LIST: return list_add(r->value, text) ? -1 : cli_usage(c, "out of memory");
    }
    return -1;
}

/* ---- the command line ---------------------------------------------------------------------------- */

static const opt_row *find_in(const opt_row *rows, const char *name, size_t n)
{
    for (const opt_row *r = rows; r && r->name; r++)
        if (strncmp(r->name, name, n) == 0 && r->name[n] == '\0') return r;
    return NULL;
}

static const opt_row *find(const command *c, const char *name, size_t n)
{
    const opt_row *r = find_in(c->options, name, n);
    return r ? r : find_in(opt_common_rows, name, n);
}

static int distance(const char *a, const char *b)
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

static int unknown(const command *c, const char *word)
{
    const opt_row *tables[] = { c->options, opt_common_rows }, *best = NULL;
    int least = 4;
    for (int t = 0; t < 2; t++)
        for (const opt_row *r = tables[t]; r && r->name; r++)
            if (distance(word + 2, r->name) < least) least = distance(word + 2, r->name), best = r;
    if (best) return cli_usage(c, "%s is not an option; did you mean --%s?", word, best->name);
    return cli_usage(c, "%s is not an option", word);
}

static void set_defaults(const opt_row *rows)
{
    static const command nobody = { .name = "" };
    for (const opt_row *r = rows; r && r->name; r++) {
        switch (r->kind) {
        case OPT_FLAG: *(bool *)r->value = false; break;
        case OPT_INT: *(int64_t *)r->value = 0; break;
        case OPT_DOUBLE: *(double *)r->value = 0; break;
        case OPT_STRING: *(const char **)r->value = NULL; break;
        case OPT_LIST: *(opt_list *)r->value = (opt_list){ 0 }; break;
        }
        if (r->fallback) assign(&nobody, r, r->fallback);
    }
}

static bool is_option(const char *word) { return strncmp(word, "--", 2) == 0 && word[2]; }

/* "-n" where the command has an option of one letter, --n. */
static bool is_letter(const command *c, const char *word)
{
    return word[0] == '-' && word[1] && word[1] != '-' && !word[2] && find(c, word + 1, 1);
}

/* One --option at argv[*i]; moves *i past what it used. */
static int parse_option(const command *c, int argc, char **argv, int *i)
{
    const char *word = argv[(*i)++], *name = word + (word[1] == '-' ? 2 : 1), *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    const opt_row *r = find(c, name, n);
    if (!r && strncmp(name, "no-", 3) == 0 && (r = find(c, name + 3, n - 3)) && r->kind == OPT_FLAG && !equals) {
        *(bool *)r->value = false;
        return -1;
    }
    if (!r) return unknown(c, word);
    if (given_count < MAX_GIVEN) given[given_count++] = r->name;
    if (r->kind == OPT_FLAG) return equals ? cli_usage(c, "--%s takes no value", r->name) : assign(c, r, NULL);
    if (equals) return assign(c, r, equals + 1);
    if (*i >= argc) return cli_usage(c, "--%s needs a value (%s)", r->name, r->metavar ? r->metavar : "VALUE");
    int code = assign(c, r, argv[(*i)++]);
    while (code < 0 && r->kind == OPT_LIST && *i < argc && !is_option(argv[*i]) && strcmp(argv[*i], "--") != 0)
        code = assign(c, r, argv[(*i)++]);
    return code;
}

static int check_required(const command *c)
{
    for (const opt_row *r = c->options; r && r->name; r++)
        if ((r->flags & OPT_REQUIRED) && !opt_given(r->name))
            return cli_usage(c, "--%s %s is needed: %s", r->name, r->metavar ? r->metavar : "VALUE", r->help);
    return -1;
}

int opt_parse(const command *c, int argc, char **argv, opt_list *rest)
{
    given_count = 0;
    *rest = (opt_list){ 0 };
    set_defaults(opt_common_rows);
    set_defaults(c->options);
    for (int i = 1; i < argc;) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            opt_print_help(c);
            return 0;
        }
        if (strcmp(argv[i], "--") == 0) {
            for (i++; i < argc; i++) positional_add(rest, argv[i]);
        } else if (is_option(argv[i]) || is_letter(c, argv[i])) {
            int code = parse_option(c, argc, argv, &i);
            if (code >= 0) return code;
        } else {
            positional_add(rest, argv[i++]);
        }
    }
    return check_required(c);
}

/* ---- help ---------------------------------------------------------------------------------------- */

static void print_rows(const opt_row *rows)
{
    for (const opt_row *r = rows; r && r->name; r++) {
        char left[80];
        if (r->flags & OPT_HIDDEN) continue;
        snprintf(left, sizeof left, "--%s%s%s", r->name, r->kind == OPT_FLAG ? "" : " ",
                 r->kind == OPT_FLAG ? ""
                 : r->metavar        ? r->metavar
                                     : "VALUE");
        printf("  %-34s%s%s", left, strlen(left) > 33 ? "\n                                    " : "", r->help);
        if (r->flags & OPT_REQUIRED) printf(" (required)");
        else if (r->fallback && r->fallback[0]) printf(" [%s]", r->fallback);
        putchar('\n');
    }
}

void opt_print_help(const command *c)
{
    printf("usage: cloob %s %s\n\n%s.\n", c->name, c->usage ? c->usage : "", c->help);
    if (c->details) printf("\n%s\n", c->details);
    if (c->options && c->options->name) {
        printf("\noptions:\n");
        print_rows(c->options);
    }
    printf("\ncommon options:\n");
    print_rows(opt_common_rows);
}
