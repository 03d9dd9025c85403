/* cloob prompts import|list. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json_out.h"

static struct {
    const char *out;
} o;

static const char *metric(const cloob_prompts *p, int64_t i)
{
    return cloob_prompts_mean_per_class(p, i) ? "mean_per_class" : "accuracy";
}

static void print_table(const cloob_prompts *p)
{
    printf("%-30s %8s %10s  %s\n", "set", "classes", "templates", "metric");
    for (int64_t i = 0; i < cloob_prompts_count(p); i++)
        printf("%-30s %8lld %10lld  %s\n", cloob_prompts_name(p, i), (long long)cloob_prompts_classes(p, i),
               (long long)cloob_prompts_templates(p, i), metric(p, i));
}

static void print_json(const cloob_prompts *p)
{
    json_out_open(NULL, '{');
    for (int64_t i = 0; i < cloob_prompts_count(p); i++) {
        json_out_open(cloob_prompts_name(p, i), '{');
        json_out_int("classes", cloob_prompts_classes(p, i));
        json_out_int("templates", cloob_prompts_templates(p, i));
        json_out_text("metric", metric(p, i));
        json_out_close();
    }
    json_out_close();
}

static int run_import(const command *self, cloob_ctx *ctx, cloob_prompts **p)
{
    if (opt_words.count < 2) return cli_usage(self, "import needs files to read");
    if (!o.out) return cli_usage(self, "import needs --out P.json");
    cloob_status status = cloob_prompts_import(ctx, opt_words.item + 1, opt_words.count - 1, p);
    if (status == CLOOB_OK) status = cloob_prompts_save(ctx, *p, o.out);
    return cli_exit(self, ctx, status);
}

static int run_list(const command *self, cloob_ctx *ctx, cloob_prompts **p)
{
    if (opt_words.count != 2) return cli_usage(self, "list needs one prompt file");
    cloob_status status = cloob_prompts_open(ctx, opt_words.item[1], p);
    return cli_exit(self, ctx, status);
}

static int run(const command *self, cloob_ctx *ctx)
{
    int code;
    cloob_prompts *p = NULL;
    const char *what = opt_words.count ? opt_words.item[0] : "";
    if (strcmp(what, "import") == 0) code = run_import(self, ctx, &p);
    else if (strcmp(what, "list") == 0) code = run_list(self, ctx, &p);
    else code = cli_usage(self, "needs import or list");
    if (code == 0) (common.json ? print_json : print_table)(p);
    cloob_prompts_close(p);
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
               "and Python files with\n"
               "`NAME_classes` and `NAME_templates`, and writes {\"NAME\": {\"classes\": [...], \"templates\": [...], "
               "\"metric\": ...}}.\n"
               "Both print a summary of the sets.\n"
               "\n"
               "  cloob prompts import prompts.md Prompt_Engineering_for_ImageNet.ipynb --out clip.json",
};
