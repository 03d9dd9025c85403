/* Data sets in CLIP_benchmark's form: SPLIT/nshards.txt, SPLIT/0.tar, SPLIT/1.tar, ..., and next to the splits
 * classnames.txt and dataset_type.txt. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "data/sets/dataset_web.h"

static const char *split_or_test(const char *split) { return split && *split ? split : "test"; }

bool web_is_benchmark(const char *folder, const char *split)
{
    char *inside = file_join(folder, split_or_test(split)), *first = inside ? file_join(inside, "0.tar") : NULL;
    bool is = first && file_exists(first);
    free(inside);
    free(first);
    return is;
}

/* One class per line, in the order of their numbers. */
static cloob_status read_classes(cloob_ctx *ctx, const char *path, name_list *classes)
{
    file_bytes f;
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &f));
    cloob_status status = CLOOB_OK;
    for (const char *at = f.data, *end = at + f.size; at < end && status == CLOOB_OK;) {
        const char *line = memchr(at, '\n', (size_t)(end - at)), *stop = line ? line : end;
        size_t n = (size_t)(stop - at) - (stop > at && stop[-1] == '\r');
        if (n) status = name_list_add(ctx, classes, at, n);
        at = stop + 1;
    }
    file_bytes_release(&f);
    return status;
}

/* The first word of a small text file; empty when there is no such file. */
static cloob_status first_word(cloob_ctx *ctx, const char *folder, const char *name, char word[32])
{
    enum { LIMIT = 4096 };
    file_bytes f;
    size_t n = 0;
    word[0] = '\0';
    char *path = file_join(folder, name);
    if (!path) return ctx_no_memory(ctx, strlen(folder), folder);
    cloob_status status = file_exists(path) ? file_read(ctx, path, LIMIT, &f) : CLOOB_ERR_IO;
    bool there = file_exists(path);
    free(path);
    if (!there) return CLOOB_OK;
    if (status != CLOOB_OK) return status;
    const char *at = f.data + strspn(f.data, " \t\r\n");
    for (; *at && !isspace((unsigned char)*at) && n < 31; at++) word[n++] = (char)tolower((unsigned char)*at);
    word[n] = '\0';
    file_bytes_release(&f);
    return CLOOB_OK;
}

/* 0.tar, 1.tar, ... the number in nshards.txt; without it every .tar of the folder. */
static cloob_status shard_names(cloob_ctx *ctx, const char *inside, name_list *names)
{
    char word[32], *end, name[32];
    CLOOB_TRY(first_word(ctx, inside, "nshards.txt", word));
    if (!word[0]) return web_names(ctx, inside, names);
    long long n = strtoll(word, &end, 10);
    if (*end || n < 1 || n > 10000000)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s/nshards.txt: \"%s\" is no number of shards", inside, word);
    for (long long i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%lld.tar", i);
        char *path = file_join(inside, name);
        if (!path) return ctx_no_memory(ctx, strlen(inside), inside);
        cloob_status status =
            file_exists(path)
                ? name_list_add(ctx, names, path, strlen(path))
                : ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: nshards.txt says %lld shards, and it is not there", path, n);
        free(path);
        CLOOB_TRY(status);
    }
    return CLOOB_OK;
}

cloob_status web_benchmark_kind(cloob_ctx *ctx, const char *folder, web_kind *out)
{
    char word[32], *classes = file_join(folder, "classnames.txt");
    if (!classes) return ctx_no_memory(ctx, strlen(folder), folder);
    *out = file_exists(classes) ? WEB_CLASSES : WEB_CAPTIONS;
    free(classes);
    CLOOB_TRY(first_word(ctx, folder, "dataset_type.txt", word));
    if (strcmp(word, "retrieval") == 0) *out = WEB_CAPTIONS;
    else if (strcmp(word, "multilabel") == 0) *out = WEB_TARGETS;
    else if (word[0] && strcmp(word, "classification") != 0)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                        "%s/dataset_type.txt: \"%s\"; known are classification, multilabel and retrieval", folder,
                        word);
    return CLOOB_OK;
}

static cloob_status choose_text(cloob_ctx *ctx, const char *folder, const dataset_options *o, dataset_part *p)
{
    web_set *w = p->self;
    web_kind kind;
    CLOOB_TRY(web_benchmark_kind(ctx, folder, &kind));
    w->targets = kind == WEB_TARGETS || strcmp(o->text_key, "npy") == 0;
    w->labels = kind == WEB_CLASSES && !w->targets;
    char *classes = file_join(folder, "classnames.txt");
    cloob_status status = classes ? CLOOB_OK : ctx_no_memory(ctx, strlen(folder), folder);
    if (status == CLOOB_OK && kind != WEB_CAPTIONS) status = read_classes(ctx, classes, &p->classes);
    free(classes);
    free(w->keys.text);
    w->keys.text = strdup(w->targets ? "npy" : w->labels ? "cls" : "txt:lines");
    return status == CLOOB_OK && !w->keys.text ? ctx_no_memory(ctx, 4, folder) : status;
}

cloob_status web_benchmark(cloob_ctx *ctx, const char *folder, const dataset_options *o, dataset_part *p,
                           name_list *names)
{
    char *inside = file_join(folder, split_or_test(o->split));
    if (!inside) return ctx_no_memory(ctx, strlen(folder), folder);
    cloob_status status = choose_text(ctx, folder, o, p);
    if (status == CLOOB_OK) status = shard_names(ctx, inside, names);
    free(inside);
    return status;
}

cloob_status web_label(cloob_ctx *ctx, const dataset_part *p, const char *text, stored_sample *s)
{
    char *end;
    long long label = strtoll(text, &end, 10);
    if (end == text || label < 0 || label >= p->classes.count)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: class %.20s of %lld", s->name.data, text,
                        (long long)p->classes.count);
    s->label = label;
    return CLOOB_OK;
}
