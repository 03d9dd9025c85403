/* Writes man pages from the option tables, and the presets as Markdown tables. */
#include "cli/cli.h"
#include "core/file.h"
#include "train/settings.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

/* Escapes backslashes, dashes, and dots or quotes at the start of a line, which are special in man pages. */
static void put(FILE *out, const char *text)
{
    bool fresh = true;
    for (; *text; text++) {
        if (fresh && (*text == '.' || *text == '\'')) fputs("\\&", out);
        if (*text == '\\') fputs("\\e", out);
        else if (*text == '-') fputs("\\-", out);
        else fputc(*text, out);
        fresh = *text == '\n';
    }
}

static void put_entry(FILE *out, const opt_entry *e)
{
    fputs(".TP\n\\fB\\-\\-", out);
    put(out, e->flag);
    fputs("\\fR", out);
    if (e->o.type != OPTION_FLAG) {
        fputs(" \\fI", out);
        put(out, e->o.values ? e->o.values : "VALUE");
        fputs(e->o.type == OPTION_LIST ? "\\fR..." : "\\fR", out);
    }
    fputc('\n', out);
    char help[1024];
    opt_with_flags(e->o.help, help, sizeof help);
    put(out, help);
    if (e->flags & OPT_REQUIRED) fputs(" (required)", out);
    else if (e->o.fallback && e->o.fallback[0]) {
        fputs(" [", out);
        put(out, e->o.fallback);
        fputc(']', out);
    }
    fputs(".\n", out);
}

static void put_entries(FILE *out, const command *c)
{
    int n;
    const opt_entry *e = opt_entries(c, &n);
    const char *group = "";
    for (int i = 0; i < n; i++) {
        if (e[i].flags & OPT_HIDDEN) continue;
        if (strcmp(group, e[i].o.group) != 0) {
            fputs(".SH ", out);
            for (group = e[i].o.group; *group; group++) fputc(toupper((unsigned char)*group), out);
            fputc('\n', out);
            group = e[i].o.group;
        }
        put_entry(out, &e[i]);
    }
}

/* Page name: "cloob-eval-zeroshot" for "eval zeroshot"; "cloob" for "". */
static void page_name(const char *name, char *out, size_t size)
{
    snprintf(out, size, "cloob%s%s", *name ? "-" : "", name);
    for (char *at = out; *at; at++)
        if (*at == ' ') *at = '-';
}

static void put_title(FILE *out, const char *name, const char *help)
{
    char page[64];
    page_name(name, page, sizeof page);
    fputs(".TH ", out), put(out, page);
    fprintf(out, " 1 \"\" \"cloob %s\" \"User Commands\"\n.SH NAME\n", cloob_version());
    put(out, page), fputs(" \\- ", out);
    put(out, help);
    fputc('\n', out);
}

/* Fills paragraphs, and keeps indented lines, which are commands. */
static void put_details(FILE *out, const char *text)
{
    bool verbatim = false;
    while (*text) {
        char line[1024];
        size_t n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        if ((*text == ' ') != verbatim) fputs((verbatim = !verbatim) ? ".nf\n" : ".fi\n", out);
        if (n) put(out, line);
        else fputs(".PP", out);
        fputc('\n', out);
        text += n + (text[n] == '\n');
    }
    if (verbatim) fputs(".fi\n", out);
}

/* Writes a reference to the page of a command or subcommand. */
static void put_part(FILE *out, const command *c)
{
    char page[64];
    page_name(c->name, page, sizeof page);
    fputs(".TP\n\\fB", out), put(out, page), fputs("\\fR(1)\n", out);
    put(out, c->help);
    fputs(".\n", out);
}

static void put_parts(FILE *out, const command *c)
{
    if (c->parts) fputs(".SH COMMANDS\n", out);
    for (int i = 0; c->parts && c->parts[i]; i++) put_part(out, c->parts[i]);
}

void man_write(FILE *out, const command *c)
{
    put_title(out, c->name, c->help);
    fprintf(out, ".SH SYNOPSIS\n\\fBcloob %s\\fR ", c->name);
    put(out, c->usage ? c->usage : "");
    fputc('\n', out);
    if (c->details) {
        fputs(".SH DESCRIPTION\n", out);
        put_details(out, c->details);
    }
    put_entries(out, c);
    put_parts(out, c);
    fputs(".SH EXIT STATUS\n0 when done, 1 when it failed (one line on standard error says why), 2 for wrong "
          "usage.\n",
          out);
    fputs(".SH SEE ALSO\n\\fBcloob\\fR(1)\n", out);
}

static void write_overview(FILE *out)
{
    put_title(out, "", "train and use CLOOB image and text encoders");
    fputs(".SH SYNOPSIS\n\\fBcloob\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH COMMANDS\n", out);
    for (int i = 0; commands[i]; i++) put_part(out, commands[i]);
}

static bool write_page(const char *folder, const command *c)
{
    char page[64], path[4096];
    page_name(c ? c->name : "", page, sizeof page);
    snprintf(path, sizeof path, "%s/%s.1", folder, page);
    FILE *out = fopen(path, "w");
    if (!out) {
        cli_error(NULL, "%s: %s", path, strerror(errno));
        return false;
    }
    if (c) man_write(out, c);
    else write_overview(out);
    if (fclose(out) == 0) return true;
    cli_error(NULL, "%s: cannot be written", path);
    return false;
}

int man_write_all(const char *folder)
{
    cloob_ctx *ctx = cli_context(CLOOB_LOG_WARN);
    bool ok = file_make_dirs(ctx, folder) == CLOOB_OK;
    if (!ok) cli_error(NULL, "%s", cloob_error(ctx));
    cloob_ctx_destroy(ctx);
    ok = ok && write_page(folder, NULL);
    for (int i = 0; ok && commands[i]; i++) {
        ok = write_page(folder, commands[i]);
        for (int p = 0; ok && commands[i]->parts && commands[i]->parts[p]; p++)
            ok = write_page(folder, commands[i]->parts[p]);
    }
    return ok ? 0 : 1;
}

/* ---- presets; docs/reference/presets.md is generated by this ------------------------------------------- */

/* Row of a setting in a preset itself, not in the preset that it extends; NULL: none. */
static const train_preset_row *row_of(const train_preset *p, const char *setting)
{
    int64_t n;
    const train_preset_row *row = preset_rows(&n);
    for (int64_t i = 0; i < n; i++)
        if (strcmp(row[i].preset, p->name) == 0 && strcmp(row[i].setting, setting) == 0) return &row[i];
    return NULL;
}

static void put_flag(FILE *out, const char *setting, const char *value)
{
    bool off = strcmp(value, "False") == 0;
    fputs(off ? "`--no-" : "`--", out);
    for (; *setting; setting++) fputc(*setting == '_' ? '-' : *setting, out);
    if (!off && strcmp(value, "True") != 0) fprintf(out, " %s", value);
    fputc('`', out);
}

static void put_preset(FILE *out, const train_preset *p)
{
    int64_t n;
    const option_desc *option = train_option_table(&n);
    fprintf(out, "## %s\n\n%c%s.", p->name, toupper((unsigned char)p->help[0]), p->help + 1);
    if (p->like) fprintf(out, " Like `%s`, except:", p->like);
    fprintf(out, "\n\n| source | the preset sets |\n|---|---|\n");
    for (int64_t i = 0; i < n; i++) {
        const train_preset_row *row = row_of(p, option[i].name);
        if (!row) continue;
        fprintf(out, "| %s | ", row->source);
        put_flag(out, row->setting, row->value);
        fputs(" |\n", out);
    }
    fputc('\n', out);
}

void presets_write(FILE *out)
{
    int64_t n;
    const train_preset *p = preset_table(&n);
    for (int64_t i = 0; i < n; i++) put_preset(out, &p[i]);
}
