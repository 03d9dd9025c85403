/* Help out of the option tables. */
#include "cli/help/help.h"

#include <ctype.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LEFT = 36, NARROWEST = 60, WIDEST = 118 };

/* The width of the terminal, or 80 columns. */
static int right_edge(void)
{
    struct winsize w;
    int columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col - 1 : 79;
    return columns < NARROWEST ? NARROWEST : columns > WIDEST ? WIDEST : columns;
}

/* Is this the end of a line inside a paragraph: neither a blank line nor an indented one follows? */
static bool is_soft_break(const char *at) { return at[0] == '\n' && at[1] && !strchr(" \n", at[1]); }

/* Words of a paragraph from column `at` on, wrapped to column `left`; returns what follows the paragraph. */
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

/* Paragraphs are wrapped to the terminal; indented lines, which are commands to copy, stay as they are. */
static void print_details(const char *text)
{
    while (*text) {
        if (*text == ' ' || *text == '\n') {
            size_t n = strcspn(text, "\n");
            printf("%.*s", (int)n, text);
            text += n;
        } else text = put_wrapped(text, 0, 0);
        putchar('\n');
        text += *text == '\n';
    }
}

static void print_entry(const opt_entry *e)
{
    char left[160], right[1024];
    bool flag = e->o.type == CLOOB_OPTION_FLAG, on = flag && e->o.fallback && strcmp(e->o.fallback, "True") == 0;
    snprintf(left, sizeof left, "--%s%s%s%s", on ? "no-" : "", e->flag, flag ? "" : " ",
             flag          ? ""
             : e->o.values ? e->o.values
                           : "VALUE");
    int n = snprintf(right, sizeof right, "%s", e->o.help);
    if (e->flags & OPT_REQUIRED) snprintf(right + n, sizeof right - (size_t)n, " (required)");
    else if (!flag && e->o.fallback && e->o.fallback[0])
        snprintf(right + n, sizeof right - (size_t)n, " [%s]", e->o.fallback);
    printf("  %-33s%s", left, strlen(left) > 33 ? "\n                                   " : "");
    putchar(' ');
    put_wrapped(right, LEFT, LEFT);
    putchar('\n');
}

void help_print(const command *c)
{
    int count;
    const opt_entry *e = opt_entries(c, &count);
    const char *group = "";
    int at = printf("usage: cloob %s ", c->name);
    put_wrapped(c->usage ? c->usage : "", at, at);
    printf("\n\n%c%s.\n", toupper((unsigned char)c->help[0]), c->help + 1);
    if (c->details) putchar('\n'), print_details(c->details);
    for (int i = 0; i < count; i++) {
        if (e[i].flags & OPT_HIDDEN) continue;
        if (strcmp(group, e[i].o.group) != 0) printf("\n%s:\n", group = e[i].o.group);
        print_entry(&e[i]);
    }
    if (!c->parts) return;
    printf("benchmarks:\n");
    for (int i = 0; c->parts[i]; i++) printf("  %-17s %s\n", c->parts[i]->name, c->parts[i]->help);
    printf("\ncloob %s NAME --help explains one of them.\n", c->name);
}
