/* Shell completion from the option tables. */
#include <string.h>

#include "cli/cli.h"

static bool is_shown(const opt_entry *e) { return !(e->flags & OPT_HIDDEN); }

static bool takes_value(const opt_entry *e) { return e->o.type != OPTION_FLAG; }

/* "a|b|c" as "a b c" */
static void put_choices(FILE *out, const option_desc *o)
{
    for (const char *c = o->values; *c; c++) fputc(*c == '|' ? ' ' : *c, out);
}

/* Inside single quotes; what means something to zsh's _arguments is escaped. */
static void put_help(FILE *out, const char *text, const char *escaped)
{
    for (; *text; text++) {
        if (*text == '\'') fputs("'\\''", out);
        else if (strchr(escaped, *text)) fprintf(out, "\\%c", *text);
        else fputc(*text, out);
    }
}

/* Calls f for a command, or for each of its parts. */
static void each_part(FILE *out, const command *c, void (*f)(FILE *out, const command *top, const command *c))
{
    f(out, c, c);
    for (int i = 0; c->parts && c->parts[i]; i++) f(out, c, c->parts[i]);
}

/* ---- bash ---------------------------------------------------------------------------------------- */

static void bash_flags(FILE *out, const command *top, const command *c)
{
    int n;
    const opt_entry *e = opt_entries(c, &n);
    (void)top;
    if (c != top) fprintf(out, " %s", c->name + strlen(top->name) + 1);
    for (int i = 0; i < n; i++)
        if (is_shown(&e[i])) fprintf(out, " --%s", e[i].flag);
}

static void bash_choices(FILE *out, const command *top, const command *c)
{
    int n;
    const opt_entry *e = opt_entries(c, &n);
    for (int i = 0; i < n; i++) {
        if (!takes_value(&e[i]) || !option_has_choices(&e[i].o)) continue;
        fprintf(out, "    %s:--%s) words='", top->name, e[i].flag);
        put_choices(out, &e[i].o);
        fputs("' ;;\n", out);
    }
}

static void write_bash(FILE *out)
{
    fputs("# bash completion for cloob\n_cloob() {\n  local word=${COMP_WORDS[COMP_CWORD]} "
          "before=${COMP_WORDS[COMP_CWORD-1]}"
          " command=${COMP_WORDS[1]} words=\n  COMPREPLY=()\n  if [ \"$COMP_CWORD\" = 1 ]; then words='help",
          out);
    for (int i = 0; commands[i]; i++) fprintf(out, " %s", commands[i]->name);
    fputs("'\n  elif [ \"$command\" = help ] && [ \"$COMP_CWORD\" = 2 ]; then words='", out);
    for (int i = 0; commands[i]; i++) fprintf(out, "%s%s", i ? " " : "", commands[i]->name);
    fputs("'\n  else case $command:$before in\n", out);
    for (int i = 0; commands[i]; i++) each_part(out, commands[i], bash_choices);
    fputs("    *) [[ $word == -* || $COMP_CWORD = 2 ]] && case $command in\n", out);
    for (int i = 0; commands[i]; i++) {
        fprintf(out, "      %s) words='", commands[i]->name);
        each_part(out, commands[i], bash_flags);
        fputs("' ;;\n", out);
    }
    fputs("    esac ;;\n  esac; fi\n  [ -n \"$words\" ] && COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "}\ncomplete -o default -F _cloob cloob\n",
          out);
}

/* ---- zsh ----------------------------------------------------------------------------------------- */

static void zsh_arguments(FILE *out, const command *top, const command *c)
{
    int n;
    const opt_entry *e = opt_entries(c, &n);
    (void)top;
    for (int i = 0; i < n; i++) {
        if (!is_shown(&e[i])) continue;
        fprintf(out, " \\\n      '%s--%s[", e[i].o.type == OPTION_LIST ? "*" : "", e[i].flag);
        put_help(out, e[i].o.help, "[]:\\");
        fputc(']', out);
        if (takes_value(&e[i]) && option_has_choices(&e[i].o)) {
            fputs(":value:(", out);
            put_choices(out, &e[i].o);
            fputc(')', out);
        } else if (takes_value(&e[i])) fputs(":value:_files", out);
        fputc('\'', out);
    }
}

static void write_zsh(FILE *out)
{
    fputs("#compdef cloob\n_cloob() {\n  local -a commands\n  commands=(\n    'help:explain a command'\n", out);
    for (int i = 0; commands[i]; i++) {
        fprintf(out, "    '%s:", commands[i]->name);
        put_help(out, commands[i]->help, ":\\");
        fputs("'\n", out);
    }
    fputs("  )\n  if (( CURRENT == 2 )); then _describe command commands; return; fi\n  case $words[2] in\n", out);
    for (int i = 0; commands[i]; i++) {
        fprintf(out, "    %s) _arguments", commands[i]->name);
        each_part(out, commands[i], zsh_arguments);
        fputs(" \\\n      '*:file:_files' ;;\n", out);
    }
    fputs("    help) _describe command commands ;;\n  esac\n}\n_cloob \"$@\"\n", out);
}

/* ---- fish ---------------------------------------------------------------------------------------- */

static void fish_options(FILE *out, const command *top, const command *c)
{
    int n;
    const opt_entry *e = opt_entries(c, &n);
    for (int i = 0; i < n; i++) {
        if (!is_shown(&e[i])) continue;
        fprintf(out, "complete -c cloob -n '__fish_seen_subcommand_from %s' -l %s -d '", top->name, e[i].flag);
        put_help(out, e[i].o.help, "\\");
        fputc('\'', out);
        if (takes_value(&e[i]) && option_has_choices(&e[i].o)) {
            fputs(" -x -a '", out);
            put_choices(out, &e[i].o);
            fputc('\'', out);
        } else if (takes_value(&e[i])) fputs(" -r", out);
        fputc('\n', out);
    }
}

static void write_fish(FILE *out)
{
    fputs("# fish completion for cloob\n", out);
    for (int i = 0; commands[i]; i++) {
        fprintf(out, "complete -c cloob -n __fish_use_subcommand -a %s -d '", commands[i]->name);
        put_help(out, commands[i]->help, "\\");
        fputs("'\n", out);
    }
    for (int i = 0; commands[i]; i++) each_part(out, commands[i], fish_options);
}

bool completion_write(FILE *out, const char *shell)
{
    static const struct {
        const char *name;
        void (*write)(FILE *out);
    } shells[] = { { "bash", write_bash }, { "zsh", write_zsh }, { "fish", write_fish } };
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].write(out);
            return true;
        }
    return false;
}
