/* Help out of the option tables. */
#include "cli/help/help.h"

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

/* Words of a text from column `at` on, wrapped to LEFT. */
static void put_wrapped(const char *text, int at)
{
    int right = right_edge();
    while (*text) {
        size_t n = strcspn(text, " ");
        if (at > LEFT && at + (int)n + 1 > right) at = LEFT, printf("\n%*s", LEFT, "");
        else if (at > LEFT) at++, putchar(' ');
        printf("%.*s", (int)n, text);
        at += (int)n;
        text += n + (text[n] == ' ');
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
    put_wrapped(right, LEFT);
    putchar('\n');
}

void help_print(const command *c)
{
    int count;
    const opt_entry *e = opt_entries(c, &count);
    const char *group = "";
    printf("usage: cloob %s %s\n\n%s.\n", c->name, c->usage ? c->usage : "", c->help);
    if (c->details) printf("\n%s\n", c->details);
    for (int i = 0; i < count; i++) {
        if (e[i].flags & OPT_HIDDEN) continue;
        if (strcmp(group, e[i].o.group) != 0) printf("\n%s:\n", group = e[i].o.group);
        print_entry(&e[i]);
    }
}
