/* Prompt sets: what is read, what is refused and how that is said, and published forms. */
#include "check.h"
#include "core/file.h"
#include "data/text/prompts.h"

static cloob_ctx *ctx;

static void check_refused(const char *text, const char *why)
{
    prompts p;
    CHECK(prompts_parse(ctx, text, strlen(text), "p.json", &p) == CLOOB_ERR_FORMAT);
    CHECK(p.count == 0);
    CHECK(strstr(cloob_error(ctx), why) != NULL);
    if (!strstr(cloob_error(ctx), why)) printf("  said: %s\n", cloob_error(ctx));
}

static void sets_are_read_and_found(void)
{
    static const char text[] =
        "{\"CIFAR10\": {\"classes\": [\"cat\", [\"happy\", \"smiling\"]], \"templates\": [\"a {}.\", \"{} or "
        "{}\"]},"
        " \"Pets\": {\"classes\": [\"dog\"], \"templates\": [\"{}\"], \"metric\": \"mean_per_class\"}}";
    prompts p;
    const prompt_set *s;
    sbuf out = { 0 };
    CHECK_OK(ctx, prompts_parse(ctx, text, strlen(text), "p.json", &p));
    CHECK(p.count == 2);
    CHECK_OK(ctx, prompts_find(ctx, &p, "cifar-10", &s));
    CHECK(s->class_count == 2 && s->classes[0].count == 1 && s->classes[1].count == 2 && s->templates.count == 2);
    CHECK_STR(s->classes[1].item[1], "smiling");
    CHECK(s->metric == PROMPT_ACCURACY && p.set[1].metric == PROMPT_MEAN_PER_CLASS);
    prompt_fill(s->templates.item[1], "cat", &out);
    CHECK_STR(out.data, "cat or cat");
    CHECK(prompts_find(ctx, &p, "cars", &s) == CLOOB_ERR_ARGUMENT && s == NULL);
    CHECK(strstr(cloob_error(ctx), "CIFAR10, Pets") != NULL);
    sbuf_release(&out);
    prompts_release(&p);
}

static void unusable_sets_are_refused(void)
{
    check_refused("", "line 1");
    check_refused("[]", "object of prompt sets");
    check_refused("{}", "at least one");
    check_refused("{\"a\": 1}", "prompt set a: needs an object");
    check_refused("{\"a\": {\"templates\": [\"{}\"]}}", "needs \"classes\"");
    check_refused("{\"a\": {\"classes\": [], \"templates\": [\"{}\"]}}", "prompt set a: no classes");
    check_refused("{\"a\": {\"classes\": [\"x\"], \"templates\": []}}", "no templates");
    check_refused("{\"a\": {\"classes\": [\"x\"]}}", "needs \"templates\"");
    check_refused("{\"a\": {\"classes\": [\"x\"], \"templates\": [\"a photo\"]}}", "\"a photo\" has no {}");
    check_refused("{\"a\": {\"classes\": [\"\"], \"templates\": [\"{}\"]}}", "class 1 has an empty name");
    check_refused("{\"a\": {\"classes\": [[]], \"templates\": [\"{}\"]}}", "class 1 has an empty name");
    check_refused("{\"a\": {\"classes\": [3], \"templates\": [\"{}\"]}}", "a name or a list");
    check_refused("{\"a\": {\"classes\": [[\"x\", 3]], \"templates\": [\"{}\"]}}", "a name or a list");
    check_refused("{\"a\": {\"classes\": [\"x\"], \"templates\": [\"{}\"], \"metric\": \"f1\"}}",
                  "accuracy or mean_per_class");
    check_refused("{\"a b\": {\"classes\": [\"x\"], \"templates\": [\"{}\"]}, \"A_B\": {\"classes\": "
                  "[\"x\"], \"templates\": [\"{}\"]}}",
                  "duplicate name");
    check_refused("{\"\": {\"classes\": [\"x\"], \"templates\": [\"{}\"]}}", "without a name");
}

static void saving_and_reading_back_is_the_same(void)
{
    static const char text[] = "{\"a \\\"q\\\"\": {\"classes\": [\"caf\xc3\xa9\", [\"x\", \"y\\n\"]], "
                               "\"templates\": [\"{}\"], \"metric\": \"mean_per_class\"}}";
    prompts p, again;
    sbuf one = { 0 }, two = { 0 };
    CHECK_OK(ctx, prompts_parse(ctx, text, strlen(text), "p.json", &p));
    prompts_put(&p, &one);
    CHECK_OK(ctx, prompts_parse(ctx, one.data, one.len, "saved", &again));
    prompts_put(&again, &two);
    CHECK_STR(two.data, one.data);
    sbuf_release(&one);
    sbuf_release(&two);
    prompts_release(&p);
    prompts_release(&again);
}

/* ---- published forms ------------------------------------------------------------------------------- */

static prompts imported(const char *text)
{
    prompts p = { 0 };
    CHECK_OK(ctx, prompts_import_text(ctx, text, strlen(text), "file", &p));
    return p;
}

static void check_import_refused(const char *text, const char *why)
{
    prompts p = { 0 };
    CHECK(prompts_import_text(ctx, text, strlen(text), "file", &p) == CLOOB_ERR_FORMAT);
    CHECK(strstr(cloob_error(ctx), why) != NULL);
    if (!strstr(cloob_error(ctx), why)) printf("  said: %s\n", cloob_error(ctx));
    prompts_release(&p);
}

static void markdown_is_read(void)
{
    prompts p = imported("# Prompts\n\nwords\n\n## Caltech101\n\n```bash\nclasses = [\n    'a cat', # one\n  "
                         "  \"colt's foot\",\n]\n\n"
                         "templates = [\n    'a \"{}\" sign.',\n]\n```\n## Emotions #\n~~~\nclasses = "
                         "[['sad'], ('happy', 'glad')]\n"
                         "templates = ('a {} '\n  'face',)\n~~~\n");
    CHECK(p.count == 2);
    if (p.count != 2) return;
    CHECK_STR(p.set[0].name, "Caltech101");
    CHECK(p.set[0].metric == PROMPT_MEAN_PER_CLASS && p.set[0].class_count == 2);
    CHECK_STR(p.set[0].classes[1].item[0], "colt's foot");
    CHECK_STR(p.set[0].templates.item[0], "a \"{}\" sign.");
    CHECK_STR(p.set[1].name, "Emotions");
    CHECK(p.set[1].classes[0].count == 1 && p.set[1].classes[1].count == 2 && p.set[1].metric == PROMPT_ACCURACY);
    CHECK_STR(p.set[1].templates.item[0], "a {} face");
    prompts_release(&p);
}

static void notebooks_are_read(void)
{
    prompts p = imported("{\"cells\": [{\"cell_type\": \"markdown\", \"source\": [\"classes = [broken\"]},"
                         "{\"cell_type\": \"code\", \"source\": [\"imagenet_classes = [\\\"tench\\\", \\\"crane\\\", "
                         "\\\"crane\\\"]\\n\", \"print(1)\"]},"
                         "{\"cell_type\": \"code\", \"source\": \"imagenet_templates = ['a {}.',\\n 'the {}']\"}]}");
    CHECK(p.count == 1);
    if (p.count != 1) return;
    CHECK_STR(p.set[0].name, "ImageNet");
    CHECK(p.set[0].class_count == 3 && p.set[0].templates.count == 2);
    prompts_release(&p);
}

static void python_is_read(void)
{
    prompts p = imported("import x\nfood_classes = ['''a\xc3\xa9''', 'b\\\\n\\'', u'c', 'd\\\n e', '\\q']\n"
                         "food_templates = [lambda c: f'a photo of {c}, {{}}.', 'plain {}']\nother = [1, "
                         "2]\ntemplates_of(3)\n");
    CHECK(p.count == 1);
    if (p.count != 1) return;
    CHECK_STR(p.set[0].classes[0].item[0], "a\xc3\xa9");
    CHECK_STR(p.set[0].classes[1].item[0], "b\\n'");
    CHECK_STR(p.set[0].classes[3].item[0], "d e");
    CHECK_STR(p.set[0].classes[4].item[0], "\\q");
    CHECK_STR(p.set[0].templates.item[0], "a photo of {}, {}.");
    prompts_release(&p);
}

static void broken_files_are_refused_with_a_line(void)
{
    check_import_refused("", "no Python lists");
    check_import_refused("just words\n", "no Python lists");
    check_import_refused("# A\n\xff\n", "line 2: not UTF-8");
    check_import_refused("# A\n```\nclasses = ['a\n", "an unterminated");
    check_import_refused("# A\n```\nclasses = ['a\n```\n", "line 3");
    check_import_refused("# A\n```\nclasses = ['a', 3]\n```\n", "not a string");
    check_import_refused("# A\n```\nclasses = ['a' 'b' c]\n```\n", "missing comma");
    check_import_refused("# A\n```\nclasses = [\n'a',\n```\n", "not a string");
    check_import_refused("# A\n```\nclasses = [\n'a',\n", "an unterminated");
    check_import_refused("# A\n```\nclasses = ['\\ud800']\n```\n", "character code");
    check_import_refused("# A\n```\nclasses = ['\\x4']\n```\n", "character code");
    check_import_refused("# A\n```\nclasses = [b'a']\n```\n", "not a string");
    check_import_refused("# A\n```\nclasses = ['a']\nclasses = ['a']\n```\n", "second list");
    check_import_refused("# A\n```\nclasses = ['a']\ntemplates = ['no hole']\n```\n", "has no {}");
    check_import_refused("# A\n```\nclasses = []\ntemplates = ['{}']\n```\n", "no classes");
    check_import_refused("# A\n```\nclasses = ['a']\ntemplates = [['{}', '{}']]\n```\n", "is a list");
    check_import_refused("# A\n```\ntemplates = [lambda c: f'{c.lower()}']\n```\n", "braces");
    check_import_refused("# A\n```\ntemplates = [lambda c: c]\n```\n", "formatted string");
    check_import_refused("```\nclasses = ['a']\n```\n", "names its set");
    check_import_refused("# A\n```\nclasses = ['a']\ntemplates = ['{}']\n```\n# a\n```\nclasses = "
                         "['a']\ntemplates = ['{}']\n```\n",
                         "duplicate name");
    check_import_refused("{\"a\": 1}", "not a notebook");
    check_import_refused("{\"cells\": [{\"cell_type\": \"code\", \"source\": [\"x_classes = ['\"]}]}",
                         "an unterminated");
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(sets_are_read_and_found);
    RUN(unusable_sets_are_refused);
    RUN(saving_and_reading_back_is_the_same);
    RUN(markdown_is_read);
    RUN(notebooks_are_read);
    RUN(python_is_read);
    RUN(broken_files_are_refused_with_a_line);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
