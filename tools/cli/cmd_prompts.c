/* cloob prompts: imports or lists prompt sets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "data/text/prompts.h"

static struct {
    const char *out;
} o;

static const char *metric(const prompt_set *s)
{
    return s->metric == PROMPT_MEAN_PER_CLASS ? "mean_per_class" : "accuracy";
}

static void print_table(const prompts *p)
{
    printf("%-30s %8s %10s  %s\n", "set", "classes", "templates", "metric");
    for (const prompt_set *s = p->set; s < p->set + p->count; s++)
        printf("%-30s %8lld %10lld  %s\n", s->name, (long long)s->class_count, (long long)s->templates.count,
               metric(s));
}

static void print_json(const prompts *p)
{
    json_out_open(NULL, '{');
    for (const prompt_set *s = p->set; s < p->set + p->count; s++)
        json_out_object(s->name, J_INT("classes", s->class_count), J_INT("templates", s->templates.count),
                        J_TEXT("metric", metric(s)));
    json_out_close();
}

static int run_import(const command *self, cloob_ctx *ctx, prompts *p)
{
    if (opt_words.count < 2) return cli_usage(self, "import needs files to read");
    if (!o.out) return cli_usage(self, "import needs --out P.json");
    cloob_status status = prompts_import(ctx, opt_words.item + 1, opt_words.count - 1, p);
    if (status == CLOOB_OK) status = prompts_save(ctx, p, o.out);
    return cli_exit(self, ctx, status);
}

static int run_list(const command *self, cloob_ctx *ctx, prompts *p)
{
    if (opt_words.count != 2) return cli_usage(self, "list needs one prompt file");
    return cli_exit(self, ctx, prompts_open(ctx, opt_words.item[1], p));
}

static int run(const command *self, cloob_ctx *ctx)
{
    int code;
    prompts p = { 0 };
    const char *what = opt_words.count ? opt_words.item[0] : "";
    if (strcmp(what, "import") == 0) code = run_import(self, ctx, &p);
    else if (strcmp(what, "list") == 0) code = run_list(self, ctx, &p);
    else code = cli_usage(self, "needs import or list");
    if (code == 0) (common.json ? print_json : print_table)(&p);
    prompts_release(&p);
    return code;
}

static const opt_row rows[] = {
    { "out", OPT_STRING, &o.out, NULL, "P.json", "import: output file", 0 },
    OPT_END,
};

const command cmd_prompts = {
    .name = "prompts",
    .run = run,
    .help = "import published prompt sets for zero-shot classification",
    .options = rows,
    .usage = "import FILE... --out P.json | list P.json",
    .details = "import reads Markdown with Python lists `classes` and `templates` under a heading per set, notebooks "
               "and Python files with `NAME_classes` and `NAME_templates`, and writes {\"NAME\": {\"classes\": [...], "
               "\"templates\": [...], \"metric\": ...}}. Both print a summary of the sets.\n"
               "\n"
               "  cloob prompts import prompts.md Prompt_Engineering_for_ImageNet.ipynb --out clip.json",
};
