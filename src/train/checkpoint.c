/* Writes and reads checkpoints. */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/arith.h"
#include "model/params.h"
#include "core/file.h"
#include "core/text.h"
#include "io/safetensors.h"

cloob_status checkpoint_verify(cloob_ctx *ctx, const char *path, const weights *w)
{
    bool stored;
    return weights_verify(ctx, path, w, &stored);
}

/* ---- writing ------------------------------------------------------------------------------------- */

static cloob_status alloc_tensor(cloob_ctx *ctx, weights *w, tensor *t)
{
    t->data = arena_push(&w->a, tensor_bytes(t));
    return t->data ? CLOOB_OK : ctx_no_memory(ctx, tensor_bytes(t), "a checkpoint");
}

/* A block laid out like the parameters, as tensors "train.KIND.NAME". Stored in engine layout: only cloob reads
 * them. */
static cloob_status add_block(cloob_ctx *ctx, weights *w, const params *p, const char *kind, const float *block)
{
    for (int i = 0; i < p->count && block; i++) {
        const param *r = &p->row[i];
        char name[200];
        if (r->buffer || r->frozen) continue;
        tensor t = TENSOR(CLOOB_F32, NULL, r->count);
        CLOOB_TRY(alloc_tensor(ctx, w, &t));
        CLOOB_TRY(p->dev->to_host(ctx, p->dev, t.data, block + r->offset, tensor_bytes(&t)));
        snprintf(name, sizeof name, "train.%s.%s", kind, r->name);
        CLOOB_TRY(weights_add(ctx, w, name, &t));
    }
    return CLOOB_OK;
}

/* The name of a row in the state of a run with adapters; false: it is not part of that. */
static bool adapter_name(const params *p, int row, char name[200])
{
    lora_part part = lora_part_of(p->row[row].name);
    bool base = p->row[row].adapter >= 0;
    if (!base && part != LORA_A && part != LORA_B) return false;
    snprintf(name, 200, "train.%s.%s", base ? "base" : "lora", p->row[row].name);
    return true;
}

static const char *adapter_text(const params *p, char text[64])
{
    snprintf(text, 64, "none");
    if (p->training.lora > 0)
        snprintf(text, 64, "r=%lld,alpha=%.9g", (long long)p->training.lora,
                 p->training.lora_scale * (double)p->training.lora);
    return text;
}

static cloob_status add_adapters(cloob_ctx *ctx, weights *w, const params *p)
{
    char name[200], text[64];
    if (p->training.lora < 1) return CLOOB_OK;
    for (int i = 0; i < p->count; i++) {
        if (!adapter_name(p, i, name)) continue;
        tensor t = p->row[i].file;
        CLOOB_TRY(alloc_tensor(ctx, w, &t));
        CLOOB_TRY(params_get(ctx, p, i, false, t.data));
        CLOOB_TRY(weights_add(ctx, w, name, &t));
    }
    return weights_set_meta(ctx, w, "train.lora", adapter_text(p, text));
}

static cloob_status set_int(cloob_ctx *ctx, weights *w, const char *key, int64_t v)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)v);
    return weights_set_meta(ctx, w, key, text);
}

static cloob_status set_number(cloob_ctx *ctx, weights *w, const char *key, double v)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", v);
    return weights_set_meta(ctx, w, key, text);
}

/* The metadata key of a learned scalar, or of one of its moments: suffix "", ".m" or ".v". */
static const char *scalar_key(char key[48], const char *name, const char *suffix)
{
    snprintf(key, 48, "train.logit_%s%s", name, suffix);
    return key;
}

static cloob_status add_scalar(cloob_ctx *ctx, weights *w, const char *name, const learned_scalar *a)
{
    char key[48];
    CLOOB_TRY(set_number(ctx, w, scalar_key(key, name, ""), a->value));
    CLOOB_TRY(set_number(ctx, w, scalar_key(key, name, ".m"), a->m));
    return set_number(ctx, w, scalar_key(key, name, ".v"), a->v);
}

/* The members of run_position in the metadata. Those that older files lack keep the values of NO_POSITION. */
static const struct {
    const char *key;
    size_t at;
    bool required;
} position_rows[] = {
    { "train.epoch", offsetof(run_position, epoch), true },
    { "train.step_in_epoch", offsetof(run_position, step_in_epoch), true },
    { "train.updates", offsetof(run_position, updates), true },
    { "train.skipped", offsetof(run_position, skipped), true },
    { "train.global_batch", offsetof(run_position, global_batch), false },
    { "train.seed", offsetof(run_position, seed), true },
    { "train.owed.epoch", offsetof(run_position, pending.epoch), false },
    { "train.owed.validation", offsetof(run_position, pending.validation), false },
    { "train.owed.zeroshot", offsetof(run_position, pending.zeroshot), false },
    { "train.owed.results_bytes", offsetof(run_position, pending.results_bytes), false },
    { "train.results_bytes", offsetof(run_position, results_bytes), false },
};
enum { POSITION_ROWS = sizeof position_rows / sizeof *position_rows };
static const run_position NO_POSITION = { .results_bytes = -1 };

int64_t run_position_samples(const run_position *at) { return saturating_mul(at->step_in_epoch, at->global_batch); }

static cloob_status add_meta(cloob_ctx *ctx, weights *w, const step_state *st, const run_position *at,
                             const checkpoint_meta *m)
{
    CLOOB_TRY(add_scalar(ctx, w, "inv_tau", &st->scalars.inv_tau));
    CLOOB_TRY(add_scalar(ctx, w, "beta", &st->scalars.beta));
    CLOOB_TRY(add_scalar(ctx, w, "bias", &st->scalars.bias));
    CLOOB_TRY(set_int(ctx, w, "train.count", st->count));
    for (int i = 0; i < POSITION_ROWS; i++) {
        int64_t v = *(const int64_t *)((const char *)at + position_rows[i].at);
        if (v >= 0) CLOOB_TRY(set_int(ctx, w, position_rows[i].key, v));
    }
    CLOOB_TRY(set_int(ctx, w, "train.samples_in_epoch", run_position_samples(at)));
    CLOOB_TRY(set_int(ctx, w, "epoch", at->epoch));
    CLOOB_TRY(weights_set_meta(ctx, w, "tokenizer", m->tokenizer));
    CLOOB_TRY(weights_set_meta(ctx, w, "method", m->method));
    CLOOB_TRY(weights_set_meta(ctx, w, "run", m->name));
    CLOOB_TRY(weights_set_meta(ctx, w, "train.options", m->options));
    CLOOB_TRY(set_number(ctx, w, "inv_tau", m->inv_tau));
    if (m->learns_inv_tau) CLOOB_TRY(weights_set_meta(ctx, w, "learnable_inv_tau", "True"));
    if (w->config.has_logit_bias) CLOOB_TRY(set_number(ctx, w, "logit_bias", st->scalars.bias.value));
    return set_number(ctx, w, "scale_hopfield", m->beta);
}

cloob_status checkpoint_gather(cloob_ctx *ctx, step *s, const run_position *at, const checkpoint_meta *meta, weights *w)
{
    step_state st = step_get_state(s);
    const params *p = step_params(s);
    CLOOB_TRY(params_store(ctx, p, w));
    CLOOB_TRY(add_adapters(ctx, w, p));
    CLOOB_TRY(add_block(ctx, w, p, "m", st.m));
    CLOOB_TRY(add_block(ctx, w, p, "v", st.v));
    CLOOB_TRY(add_block(ctx, w, p, "ema", st.ema));
    CLOOB_TRY(hopfield_memory_save(ctx, step_stored(s), w));
    return add_meta(ctx, w, &st, at, meta);
}

cloob_status checkpoint_write(cloob_ctx *ctx, const char *path, step *s, const run_position *at,
                              const checkpoint_meta *meta)
{
    weights w;
    weights_init(&w);
    cloob_status status = checkpoint_gather(ctx, s, at, meta, &w);
    if (status == CLOOB_OK) status = weights_write_native(ctx, path, &w);
    weights_release(&w);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------------- */

static cloob_status get_int(cloob_ctx *ctx, const weights *w, const char *path, const char *key, int64_t *out)
{
    const char *text = weights_get_meta(w, key);
    char *end;
    errno = 0;
    *out = text ? strtoll(text, &end, 10) : 0;
    if (text && !errno && end != text && !*end && *out >= 0) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no usable training state in it (%s); it can be used with `pretrained`",
                    path, key);
}

static cloob_status check_tensor(cloob_ctx *ctx, const weights *w, const char *path, const char *name, int64_t count)
{
    const tensor *t = weights_find(w, name);
    if (t && t->dtype == CLOOB_F32 && tensor_count(t) == count) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s is missing or of another size; it can be used with `pretrained`",
                    path, name);
}

/* The tensors "train.KIND.NAME" of all trained parameters to a block laid out like them; block NULL: only checks that
 * they are there, so that everything is checked before the first value is written. */
static cloob_status load_block(cloob_ctx *ctx, const weights *w, const char *path, const params *p, const char *kind,
                               float *block)
{
    for (int i = 0; i < p->count; i++) {
        char name[200];
        if (p->row[i].buffer || p->row[i].frozen) continue;
        snprintf(name, sizeof name, "train.%s.%s", kind, p->row[i].name);
        CLOOB_TRY(check_tensor(ctx, w, path, name, p->row[i].count));
        const tensor *t = weights_find(w, name);
        if (block) CLOOB_TRY(p->dev->to_device(ctx, p->dev, block + p->row[i].offset, t->data, tensor_bytes(t)));
    }
    return block ? p->dev->sync(ctx, p->dev) : CLOOB_OK;
}

/* A resumed run has the same adapters as before, or none. */
static cloob_status check_adapters(cloob_ctx *ctx, const weights *w, const char *path, const params *p)
{
    const char *stored = weights_get_meta(w, "train.lora");
    char name[200], asked[64];
    adapter_text(p, asked);
    if (strcmp(stored ? stored : "none", asked) != 0)
        return ctx_fail(
            ctx, CLOOB_ERR_ARGUMENT,
            "%s: its run has `lora` %s, this one %s; resume with the same, or start a new run from its weights "
            "with `pretrained`",
            path, stored ? stored : "none", asked);
    for (int i = 0; i < p->count; i++) {
        if (!adapter_name(p, i, name)) continue;
        CLOOB_TRY(check_tensor(ctx, w, path, name, p->row[i].count));
    }
    return CLOOB_OK;
}

/* Call after params_load, which loaded the merged weights. */
static cloob_status load_adapters(cloob_ctx *ctx, const weights *w, params *p)
{
    char name[200];
    if (p->training.lora < 1) return CLOOB_OK;
    CLOOB_TRY(params_init_adapters(ctx, p, 0)); /* the scale */
    for (int i = 0; i < p->count; i++)
        if (adapter_name(p, i, name)) CLOOB_TRY(params_set(ctx, p, i, weights_find(w, name)->data));
    return params_refresh(ctx, p);
}

cloob_status checkpoint_compare(cloob_ctx *ctx, const model_config *stored, const model_config *asked,
                                char **difference)
{
    sbuf have = { 0 }, want = { 0 };
    model_config_to_json(stored, &have);
    model_config_to_json(asked, &want);
    bool same = !have.failed && !want.failed && strcmp(have.data, want.data) == 0;
    sbuf_printf(&have, "; this run has %s", want.failed ? "" : want.data);
    bool failed = have.failed || want.failed;
    sbuf_release(&want);
    *difference = sbuf_detach(&have);
    if (same) free(*difference), *difference = NULL;
    return failed ? ctx_no_memory(ctx, 512, "a configuration") : CLOOB_OK;
}

static cloob_status check_same_model(cloob_ctx *ctx, const weights *w, const char *path, const params *p)
{
    char *difference;
    model_config here = p->config;
    here.patch_dropout = w->config.patch_dropout; /* a setting of the run */
    CLOOB_TRY(checkpoint_compare(ctx, &w->config, &here, &difference));
    if (!difference) return CLOOB_OK;
    cloob_status status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: holds another model: %s", path, difference);
    free(difference);
    return status;
}

static cloob_status read_position(cloob_ctx *ctx, const weights *w, const char *path, run_position *at)
{
    *at = NO_POSITION;
    for (int i = 0; i < POSITION_ROWS; i++)
        if (position_rows[i].required || weights_get_meta(w, position_rows[i].key))
            CLOOB_TRY(
                get_int(ctx, w, path, position_rows[i].key, (int64_t *)(void *)((char *)at + position_rows[i].at)));
    return CLOOB_OK;
}

static double get_number(const weights *w, const char *key)
{
    const char *text = weights_get_meta(w, key);
    return text ? strtod(text, NULL) : 0;
}

static learned_scalar read_scalar(const weights *w, const char *name)
{
    char key[48];
    return (learned_scalar){ .value = get_number(w, scalar_key(key, name, "")),
                             .m = get_number(w, scalar_key(key, name, ".m")),
                             .v = get_number(w, scalar_key(key, name, ".v")) };
}

cloob_status checkpoint_apply(cloob_ctx *ctx, const weights *w, const char *path, step *s, run_position *at)
{
    params *p = step_params(s);
    step_state st = step_get_state(s);
    step_scalars scalars;
    int64_t count;
    CLOOB_TRY(check_same_model(ctx, w, path, p));
    CLOOB_TRY(get_int(ctx, w, path, "train.count", &count));
    CLOOB_TRY(read_position(ctx, w, path, at));
    scalars = (step_scalars){ read_scalar(w, "inv_tau"), read_scalar(w, "beta"), read_scalar(w, "bias") };
    CLOOB_TRY(check_adapters(ctx, w, path, p));
    const char *const kind[] = { "m", "v", "ema" };
    float *const block[] = { st.m, st.v, st.ema };
    for (int k = 0; k < 3; k++)
        if (block[k]) CLOOB_TRY(load_block(ctx, w, path, p, kind[k], NULL));
    CLOOB_TRY(params_load(ctx, p, w));
    CLOOB_TRY(load_adapters(ctx, w, p));
    for (int k = 0; k < 3; k++)
        if (block[k]) CLOOB_TRY(load_block(ctx, w, path, p, kind[k], block[k]));
    CLOOB_TRY(hopfield_memory_load(ctx, step_stored(s), w, path));
    return step_set_scalars(ctx, s, &scalars, count);
}

cloob_status checkpoint_read(cloob_ctx *ctx, const char *path, step *s, run_position *at)
{
    weights w;
    CLOOB_TRY(weights_read_native(ctx, path, &w));
    cloob_status status = check_same_model(ctx, &w, path, step_params(s));
    if (status == CLOOB_OK) status = checkpoint_verify(ctx, path, &w);
    if (status == CLOOB_OK) status = checkpoint_apply(ctx, &w, path, s, at);
    weights_release(&w);
    return status;
}

/* ---- the checkpoint that a resumed run starts from -------------------------------------------------- */

/* Checks the header, the tensors of the model and the checksum. */
static cloob_status check_valid(cloob_ctx *ctx, const char *path)
{
    weights w;
    CLOOB_TRY(weights_read_native(ctx, path, &w));
    cloob_status status = checkpoint_verify(ctx, path, &w);
    if (status == CLOOB_OK && !weights_get_meta(&w, "train.updates"))
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: holds no training state", path);
    weights_release(&w);
    return status;
}

/* The number of updates, from the header; -1: cannot be read. */
static int64_t updates_of(cloob_ctx *ctx, const char *path)
{
    st_file f;
    if (st_open(ctx, path, &f) != CLOOB_OK) return -1;
    const char *text = st_meta_get(&f, "train.updates");
    int64_t n = text ? strtoll(text, NULL, 10) : -1;
    st_close(&f);
    return n;
}

/* Of the other checkpoints, the valid one with the most updates. */
static cloob_status find_other(cloob_ctx *ctx, const char *folder, char path[RESUME_PATH])
{
    DIR *d = opendir(folder);
    int64_t most = -1;
    for (struct dirent *e; d && (e = readdir(d));) {
        char other[RESUME_PATH];
        if (!text_ends_with(e->d_name, ".safetensors") || strcmp(e->d_name, "latest.safetensors") == 0) continue;
        if (snprintf(other, RESUME_PATH, "%s/%s", folder, e->d_name) >= RESUME_PATH) continue;
        int64_t n = updates_of(ctx, other);
        if (n < most || n < 0 || (n == most && strcmp(other, path) > 0)) continue;
        if (check_valid(ctx, other) == CLOOB_OK) most = n, memcpy(path, other, RESUME_PATH);
        else ctx_log(ctx, CLOOB_LOG_WARN, "skipped: %s", cloob_error(ctx));
    }
    if (d) closedir(d);
    if (most >= 0) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_IO,
                    "%s: no valid checkpoint to resume from; start without `resume` and with another `name`", folder);
}

cloob_status resume_find(cloob_ctx *ctx, const char *folder, char path[RESUME_PATH])
{
    if (snprintf(path, RESUME_PATH, "%s/latest.safetensors", folder) >= RESUME_PATH)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: too long a path", folder);
    if (file_exists(path)) {
        if (check_valid(ctx, path) == CLOOB_OK) return CLOOB_OK;
        ctx_log(ctx, CLOOB_LOG_WARN, "%s; looking for an earlier one", cloob_error(ctx));
    }
    CLOOB_TRY(find_other(ctx, folder, path));
    ctx_log(ctx, CLOOB_LOG_WARN, "resuming from %s", path);
    return CLOOB_OK;
}

bool resume_is_inside(const char *folder, const char *path)
{
    char a[PATH_MAX], b[PATH_MAX], own[RESUME_PATH];
    snprintf(own, sizeof own, "%s", path);
    char *slash = strrchr(own, '/');
    if (slash) *slash = '\0';
    return realpath(slash ? own : ".", a) && realpath(folder, b) && strcmp(a, b) == 0;
}

void resume_real_name(const char *folder, const char *path, char name[RESUME_PATH])
{
    struct stat want, st;
    name[0] = '\0';
    if (stat(path, &want) != 0 || !resume_is_inside(folder, path)) return;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && !name[0] && (e = readdir(d));) {
        char file[RESUME_PATH];
        if (!text_ends_with(e->d_name, ".safetensors") || strcmp(e->d_name, "latest.safetensors") == 0) continue;
        if (strcmp(e->d_name, "best.safetensors") == 0) continue; /* a second name, which is not deleted */
        if (snprintf(file, sizeof file, "%s/%s", folder, e->d_name) >= (int)sizeof file || stat(file, &st) != 0)
            continue;
        if (st.st_ino == want.st_ino && st.st_dev == want.st_dev) memcpy(name, file, sizeof file);
    }
    if (d) closedir(d);
}

void resume_clean(const char *folder)
{
    char path[RESUME_PATH];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strstr(e->d_name, ".safetensors.tmp") &&
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < (int)sizeof path)
            unlink(path);
    if (d) closedir(d);
}
