/* Prints help from the option tables. */
#include "cli/cli.h"
#include "core/text.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { LEFT = 36, NARROWEST = 60, WIDEST = 118 };

/* The last column used for text. */
static int right_edge(void)
{
    int columns = progress_columns(STDOUT_FILENO);
    return columns <= NARROWEST ? NARROWEST : columns > WIDEST ? WIDEST : columns - 1;
}

/* Whether a newline is inside a paragraph: followed by neither an empty line nor an indented line. */
static bool is_soft_break(const char *at) { return at[0] == '\n' && at[1] && !strchr(" \n", at[1]); }

/* Prints the words of a paragraph, starting at column `at`, wrapped to column `left`; returns the text after it. */
static const char *put_wrapped(const char *text, int at, int left)
{
    int right = right_edge();
    while (*text && *text != '\n') {
        size_t n = strcspn(text, " \n");
        if (at > left && at + (int)n + 1 > right) at = left, printf("\n%*s", left, "");
        else if (at > left) at++, putchar(' ');
        printf("%.*s", (int)n, text);
        at += (int)n;
        text += n + (text[n] == ' ' || is_soft_break(text + n));
    }
    return text;
}

/* Where to break a command that is wider than `width`: the last space outside quotes, preferably before an option; 0:
 * nowhere. */
static size_t last_break(const char *text, size_t n, size_t width)
{
    size_t blank = 0, option = 0;
    char quote = '\0';
    for (size_t i = 1; i < n && i <= width; i++) {
        if (quote ? text[i] == quote : text[i] == '"' || text[i] == '\'') quote = quote ? '\0' : text[i];
        else if (!quote && text[i] == ' ') blank = i, option = strncmp(text + i, " --", 3) == 0 ? i : option;
    }
    return option ? option : blank;
}

/* Prints a command that can be copied: a line too long for the terminal is broken after a backslash. */
static void put_command(const char *text, size_t n)
{
    size_t indent = strspn(text, " "), right = (size_t)right_edge();
    printf("%*s", (int)indent, "");
    for (text += indent, n -= indent; indent + n > right;) {
        size_t cut = last_break(text, n, right - indent - 2);
        if (!cut) break;
        if (indent < 6) indent = 6;
        printf("%.*s \\\n%*s", (int)cut, text, (int)indent, "");
        text += cut + 1, n -= cut + 1;
    }
    printf("%.*s", (int)n, text);
}

/* Prints paragraphs wrapped to the terminal, and indented lines as commands. */
static void print_details(const char *text)
{
    while (*text) {
        if (*text == ' ' || *text == '\n') {
            size_t n = strcspn(text, "\n");
            put_command(text, n);
            text += n;
        } else text = put_wrapped(text, 0, 0);
        putchar('\n');
        text += *text == '\n';
    }
}

/* Prints an option and its choices, broken after | if too long; returns the column after it. */
static int put_option(const char *text)
{
    size_t width = (size_t)right_edge() - 2;
    int at = printf("  ");
    for (size_t cut = width; strlen(text) > width; text += cut) {
        for (cut = width; cut && text[cut - 1] != '|'; cut--)
            ;
        if (!cut) break;
        printf("%.*s\n%6s", (int)cut, text, "");
        width = (size_t)right_edge() - 6, at = 6;
    }
    return at + printf("%s", text);
}

static void print_entry(const opt_entry *e)
{
    char left[160], right[1024];
    bool flag = e->o.type == OPTION_FLAG, on = flag && e->o.fallback && strcmp(e->o.fallback, "True") == 0;
    snprintf(left, sizeof left, "--%s%s%s%s", on ? "no-" : "", e->flag, flag ? "" : " ",
             flag          ? ""
             : e->o.values ? e->o.values
                           : "VALUE");
    opt_with_flags(e->o.help, right, sizeof right);
    size_t n = strlen(right);
    if (e->flags & OPT_REQUIRED) snprintf(right + n, sizeof right - n, " (required)");
    else if (!flag && e->o.fallback && e->o.fallback[0]) snprintf(right + n, sizeof right - n, " [%s]", e->o.fallback);
    int at = put_option(left);
    if (at > LEFT - 1) at = 0, putchar('\n');
    printf("%*s", LEFT - at, "");
    put_wrapped(right, LEFT, LEFT);
    putchar('\n');
}

/* Length of the part of a usage line that is not broken: a word, a bracket, or an option with its value. */
static size_t usage_part(const char *text)
{
    size_t n = 0;
    bool valued = strncmp(text, "--", 2) == 0;
    for (int depth = 0; text[n] && (text[n] != ' ' || depth || valued); n++) {
        depth += (text[n] == '[') - (text[n] == ']');
        if (text[n] == ' ' && !depth) valued = false;
    }
    return n;
}

/* Prints a form of a command, starting at column `left`. */
static void put_usage(const char *text, int left)
{
    for (int at = left; *text; text += *text == ' ') {
        size_t n = usage_part(text);
        if (at > left && at + (int)n + 1 > right_edge()) at = left, printf("\n%*s", left, "");
        else if (at > left) at++, putchar(' ');
        at += printf("%.*s", (int)n, text);
        text += n;
    }
}

static void print_summary(const command *c)
{
    char summary[256], way[512];
    const char *usage = c->usage ? c->usage : "", *first = "usage:";
    for (const char *end; first || *usage;
         usage = end ? end + 3 : "", first = NULL) { /* one line per form of the command */
        end = strstr(usage, " | ");
        snprintf(way, sizeof way, "%.*s", end ? (int)(end - usage) : (int)strlen(usage), usage);
        int at = printf("%6s cloob %s%s", first ? first : "or:", c->name, *way ? " " : "");
        put_usage(way, at);
        putchar('\n');
    }
    snprintf(summary, sizeof summary, "%c%s.", toupper((unsigned char)c->help[0]), c->help + 1);
    putchar('\n');
    put_wrapped(summary, 0, 0);
    putchar('\n');
    if (c->details) putchar('\n'), print_details(c->details);
}

static void print_parts(const command *c)
{
    printf("\ncommands:\n");
    for (int i = 0; c->parts[i]; i++) {
        printf("  %-17s ", c->parts[i]->name);
        put_wrapped(c->parts[i]->help, 20, 20);
        putchar('\n');
    }
    printf("\ncloob help %s NAME explains one of them.\n", c->name);
}

static void print_help(const command *c, bool all)
{
    int count, listed = 0, shown = 0;
    const opt_entry *e = opt_entries(c, &count);
    const char *group = "";
    print_summary(c);
    for (int i = 0; i < count && c->run; i++) {
        if (e[i].flags & OPT_HIDDEN) continue;
        listed++;
        if (c->brief && !all && !text_has_word(c->brief, e[i].flag)) continue;
        shown++;
        if (strcmp(group, e[i].o.group) != 0) printf("\n%s:\n", group = e[i].o.group);
        print_entry(&e[i]);
    }
    if (shown < listed) {
        char more[256];
        snprintf(more, sizeof more,
                 "These are %d of %d options; cloob help %s --all lists all, --match WORD finds some.", shown, listed,
                 c->name);
        putchar('\n'), put_wrapped(more, 0, 0), putchar('\n');
    }
    if (c->parts) print_parts(c);
}

static bool contains(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (; *text; text++)
        if (strncasecmp(text, word, n) == 0) return true;
    return false;
}

/* Prints the options of a command and of its parts whose name or description contains the word; returns their
 * number. */
static int print_matches(const command *c, const char *word)
{
    char flag[48];
    int count, found = 0;
    const opt_entry *e = opt_entries(c, &count);
    snprintf(flag, sizeof flag, "%s", word + strspn(word, "-"));
    for (char *at = flag; *at; at++)
        if (*at == '_') *at = '-';
    for (int i = 0; i < count && (c->run || !c->parts); i++) {
        bool named = contains(e[i].flag, flag) || (e[i].o.alias && contains(e[i].o.alias, flag));
        if (e[i].flags & OPT_HIDDEN || (!named && !contains(e[i].o.help, word))) continue;
        if (!found++) printf("cloob %s:\n", c->name);
        print_entry(&e[i]);
    }
    for (int i = 0; c->parts && c->parts[i]; i++) found += print_matches(c->parts[i], word);
    return found;
}

int help_command(const command *c, int argc, char **argv)
{
    bool all = false;
    const char *match = NULL;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--all") == 0) all = true;
        else if (strncmp(argv[i], "--match=", 8) == 0) match = argv[i] + 8;
        else if (strcmp(argv[i], "--match") == 0) {
            if (!argv[i + 1]) return cli_usage(c, "--match needs a word");
            match = argv[++i];
        }
    }
    if (!match) print_help(c, all);
    else if (!print_matches(c, match)) {
        cli_error(NULL, "no option of cloob %s matches %s", c->name, match);
        return 1;
    }
    return 0;
}
