/* Generates shell completion from the option tables. */
#include <string.h>

#include "cli/cli.h"

static bool takes_value(const opt_entry *e) { return e->o.type != OPTION_FLAG; }

static bool has_choices(const opt_entry *e) { return takes_value(e) && option_has_choices(&e->o); }

/* Writes "a|b|c" as "a b c". */
static void put_choices(FILE *out, const option_desc *o)
{
    for (const char *c = o->values; *c; c++) fputc(*c == '|' ? ' ' : *c, out);
}

/* Writes the text inside single quotes. */
static void put_help(FILE *out, const char *help)
{
    char shown[1024];
    opt_with_flags(help, shown, sizeof shown);
    for (const char *text = shown; *text; text++) {
        if (*text == '\'') fputs("'\\''", out);
        else if (*text == '\\') fputs("\\\\", out);
        else fputc(*text, out);
    }
}

/* Calls put for each option that help lists, for a command and its parts. */
static void each_option(FILE *out, const command *top, void (*put)(FILE *out, const command *top, const opt_entry *e))
{
    for (int i = -1; i < 0 || (top->parts && top->parts[i]); i++) {
        int n;
        const opt_entry *e = opt_entries(i < 0 ? top : top->parts[i], &n);
        for (int k = 0; k < n; k++)
            if (!(e[k].flags & OPT_HIDDEN)) put(out, top, &e[k]);
    }
}

/* ---- bash ---------------------------------------------------------------------------------------- */

static void bash_flag(FILE *out, const command *top, const opt_entry *e)
{
    (void)top;
    fprintf(out, " --%s", e->flag);
}

static void bash_choices(FILE *out, const command *top, const opt_entry *e)
{
    if (!has_choices(e)) return;
    fprintf(out, "    %s:--%s) words='", top->name, e->flag);
    put_choices(out, &e->o);
    fputs("' ;;\n", out);
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
    for (int i = 0; commands[i]; i++) each_option(out, commands[i], bash_choices);
    fputs("    *) [[ $word == -* || $COMP_CWORD = 2 ]] && case $command in\n", out);
    for (int i = 0; commands[i]; i++) {
        fprintf(out, "      %s) words='", commands[i]->name);
        for (int p = 0; commands[i]->parts && commands[i]->parts[p]; p++)
            fprintf(out, " %s", commands[i]->parts[p]->name + strlen(commands[i]->name) + 1);
        each_option(out, commands[i], bash_flag);
        fputs("' ;;\n", out);
    }
    fputs("    esac ;;\n  esac; fi\n  [ -n \"$words\" ] && COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "}\ncomplete -o default -F _cloob cloob\n",
          out);
}

/* ---- zsh: uses bash's function ----------------------------------------------------------------------- */

static void write_zsh(FILE *out)
{
    fputs("#compdef cloob\nautoload -U +X bashcompinit && bashcompinit\n", out);
    write_bash(out);
    fputs("_bash_complete -o default -F _cloob\n", out); /* for the first completion, which loads this file */
}

/* ---- fish ---------------------------------------------------------------------------------------- */

static void fish_option(FILE *out, const command *top, const opt_entry *e)
{
    fprintf(out, "complete -c cloob -n '__fish_seen_subcommand_from %s' -l %s -d '", top->name, e->flag);
    put_help(out, e->o.help);
    fputc('\'', out);
    if (has_choices(e)) {
        fputs(" -x -a '", out);
        put_choices(out, &e->o);
        fputc('\'', out);
    } else if (takes_value(e)) fputs(" -r", out);
    fputc('\n', out);
}

static void write_fish(FILE *out)
{
    fputs("# fish completion for cloob\n", out);
    for (int i = 0; commands[i]; i++) {
        fprintf(out, "complete -c cloob -n __fish_use_subcommand -a %s -d '", commands[i]->name);
        put_help(out, commands[i]->help);
        fputs("'\n", out);
    }
    for (int i = 0; commands[i]; i++) each_option(out, commands[i], fish_option);
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
