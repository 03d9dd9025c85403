/* Reads checkpoints of all supported formats: opens the file, finds the configuration, takes the model's tensors, and
 * reports all other keys. */
#include "model/interchange.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "model/digest.h"
#include "model/params.h"
#include "model/weights.h"

typedef struct reader {
    cloob_ctx *ctx;
    const interchange_options *o;
    weights *w;
    interchange_report *report;
    source s;
} reader;

/* ---- the report ---------------------------------------------------------------------------------- */

static cloob_status report_key(reader *r, key_fate fate, const char *text)
{
    interchange_report *p = r->report;
    const char **key = arena_grow(&p->a, p->key[fate], p->count[fate], &p->capacity[fate], 64, sizeof *key);
    if (!key) return ctx_no_memory(r->ctx, sizeof *key, "the report");
    p->key[fate] = key;
    char *copy = arena_string(&p->a, text);
    if (!copy) return ctx_no_memory(r->ctx, strlen(text), "the report");
    p->key[fate][p->count[fate]++] = copy;
    return CLOOB_OK;
}

void interchange_report_release(interchange_report *report)
{
    arena_release(&report->a);
    *report = (interchange_report){ 0 };
}

static void put_keys(sbuf *s, const interchange_report *p, key_fate fate, const char *what)
{
    enum { SHOWN = 4 };
    if (!p->count[fate]) return;
    sbuf_printf(s, "%s%lld %s (", s->len ? ", " : "", (long long)p->count[fate], what);
    for (int64_t i = 0; i < p->count[fate] && i < SHOWN; i++)
        sbuf_printf(s, "%s%.150s", i ? "; " : "", p->key[fate][i]);
    sbuf_puts(s, p->count[fate] > SHOWN ? "; ...)" : ")");
}

/* One error line with the first few keys of each category; the report has all of them. */
static cloob_status check_report(reader *r)
{
    const interchange_report *p = r->report;
    bool unexpected = p->count[KEY_UNEXPECTED] && !r->o->drop_unexpected;
    if (!p->count[KEY_MISSING] && !p->count[KEY_MISSHAPED] && !unexpected) return CLOOB_OK;
    sbuf s = { 0 };
    put_keys(&s, p, KEY_MISSING, "missing");
    put_keys(&s, p, KEY_MISSHAPED, "of the wrong shape");
    if (unexpected) put_keys(&s, p, KEY_UNEXPECTED, "unexpected");
    const char *remedy = p->count[KEY_MISSING] || p->count[KEY_MISSHAPED] ? "" : "; `drop_unexpected` leaves them out";
    cloob_status status = ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: does not match the configuration %s (from %s): %s%s",
                                   r->s.path, r->w->config.name, p->config, s.data ? s.data : "", remedy);
    sbuf_release(&s);
    return status;
}

/* ---- opening ------------------------------------------------------------------------------------- */

/* Files that a folder may contain, in order of preference. The last one is a training run's. */
static const char *const folder_files[] = { "open_clip_model.safetensors",
                                            "open_clip_pytorch_model.bin",
                                            "open_clip_model.safetensors.index.json",
                                            "model.safetensors",
                                            "model.safetensors.index.json",
                                            "pytorch_model.bin",
                                            "pytorch_model.bin.index.json",
                                            "checkpoints/latest.safetensors" };

static cloob_status pick_file(cloob_ctx *ctx, const char *path, char out[FILE_PATH])
{
    if (!file_is_dir(path)) return file_in(ctx, "", path, out);
    for (size_t i = 0; i < sizeof folder_files / sizeof folder_files[0]; i++) {
        CLOOB_TRY(file_in(ctx, path, folder_files[i], out));
        if (file_exists(out)) return CLOOB_OK;
    }
    return ctx_fail(ctx, CLOOB_ERR_IO,
                    "%s: no weights in this folder (model.safetensors, open_clip_model.safetensors, their .bin forms, "
                    "or a run's checkpoints/latest.safetensors)",
                    path);
}

/* Opens a safetensors file. A file in cloob's format is checked against its checksum first. */
static cloob_status open_safetensors(cloob_ctx *ctx, const char *path, st_file *f)
{
    CLOOB_TRY(st_open(ctx, path, f));
    const char *format = st_meta_get(f, "format");
    if (!format || strcmp(format, "cloob") != 0) return CLOOB_OK;
    return digest_check_model_once(ctx, path,
                                   &(digest_input){ f->entry, f->count, f->meta, f->meta_count, NULL, NULL });
}

static cloob_status open_file(reader *r, const char *path)
{
    static const char *const layout[] = { "torch zip", "TorchScript", "torch stream", "pickle of arrays" };
    unsigned char first[64];
    size_t have;
    if (shards_looks_like(path)) {
        CLOOB_TRY(shards_open(r->ctx, path, r->w));
        r->report->container = r->w->shard[0].torch.count ? "torch shards" : "safetensors shards";
        return CLOOB_OK;
    }
    CLOOB_TRY(file_read_beginning(r->ctx, path, first, sizeof first, &have));
    const char *other = have > 4 && memcmp(first, "GGUF", 4) == 0 ? "GGUF"
                        : text_ends_with(path, ".onnx")           ? "ONNX"
                                                                  : NULL;
    const char *kind = file_kind(first, have);
    bool torch = torch_looks_like(first, have) || text_ends_with(path, ".pt");
    if (other)
        return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: files of %s are not supported; give the weights it was made from", path, other);
    if (kind)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT,
                        "%s: not a model, but %s; give a .safetensors, .pt or .bin file, or a folder with one", path,
                        kind);
    r->report->container = "safetensors";
    if (!torch && !arrays_looks_like(first, have)) return open_safetensors(r->ctx, path, &r->w->st);
    CLOOB_TRY(torch_open(r->ctx, path, &r->w->torch));
    r->report->container = layout[r->w->torch.layout];
    return CLOOB_OK;
}

/* ---- taking tensors ------------------------------------------------------------------------------ */

static cloob_status report_shape(reader *r, const char *name, const tensor *have, const tensor *want)
{
    char text[NAME_BYTES + 3 * SHAPE_TEXT], a[SHAPE_TEXT], b[SHAPE_TEXT];
    snprintf(text, sizeof text, "%s: %s %s, wanted %s", name, dtype_name(have->dtype), tensor_shape_text(have, a),
             tensor_shape_text(want, b));
    return report_key(r, KEY_MISSHAPED, text);
}

void foreign_transpose(void *to, const void *from, int64_t n, int64_t m, size_t element)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++)
            memcpy((char *)to + (size_t)(i * m + j) * element, (const char *)from + (size_t)(j * n + i) * element,
                   element);
}

/* Transposes a convolution weight (h, w, in, out) to (out, in, h, w). */
static void channels_first(void *to, const void *from, const int64_t dim[4], size_t element)
{
    int64_t O = dim[0], I = dim[1], K = dim[2] * dim[3];
    for (int64_t i = 0; i < O * I * K; i++) {
        int64_t o = i / (I * K), c = i / K % I, k = i % K;
        memcpy((char *)to + (size_t)i * element, (const char *)from + (size_t)((k * I + c) * O + o) * element, element);
    }
}

tensor foreign_shape(const tensor *row, const foreign *f, int i)
{
    tensor t = *row;
    t.dim[0] = row->dim[0] * f->share[i] / 6;
    if (f->transposed) {
        int64_t rows = t.dim[0];
        t.dim[0] = row->dim[1], t.dim[1] = rows;
    }
    if (f->last) t = TENSOR(row->dtype, NULL, row->dim[2], row->dim[3], row->dim[1], row->dim[0]);
    for (int k = t.ndim - 1; f->lead && k >= 0; k--) t.dim[k + f->lead] = t.dim[k];
    for (int k = 0; k < f->lead; k++) t.dim[k] = 1;
    t.ndim += f->lead;
    return t;
}

/* Finds all parts of a tensor. Missing or mismatched parts are added to the report and clear *whole. */
static cloob_status find_parts(reader *r, const foreign *f, const tensor *row, const tensor *part[NAME_PARTS],
                               bool *whole)
{
    *whole = true;
    for (int i = 0; i < f->parts; i++) {
        tensor want = foreign_shape(row, f, i);
        int64_t at = source_find(&r->s, f->name[i]);
        if (at >= 0) r->s.used[at] = true;
        part[i] = at >= 0 ? &r->s.entry[at].t : NULL;
        bool fits = part[i] && tensor_same_shape(part[i], &want) && dtype_is_float(part[i]->dtype) &&
                    part[i]->dtype == part[0]->dtype;
        if (fits) continue;
        *whole = false;
        if (!part[i]) CLOOB_TRY(report_key(r, KEY_MISSING, f->name[i]));
        else CLOOB_TRY(report_shape(r, f->name[i], part[i], &want));
        if (!part[0]) return CLOOB_OK;
    }
    return CLOOB_OK;
}

static cloob_status take(reader *r, const st_entry *row)
{
    foreign f;
    const tensor *part[NAME_PARTS] = { NULL };
    bool whole;
    names_foreign(r->s.names, row->name, &f);
    CLOOB_TRY(find_parts(r, &f, &row->t, part, &whole));
    if (!whole) return CLOOB_OK;
    tensor t = row->t;
    t.dtype = part[0]->dtype;
    t.data = part[0]->data;
    size_t bytes = tensor_bytes(&t), at = 0, element = dtype_size(t.dtype);
    bool copied = f.parts > 1 || f.transposed || f.last;
    if (copied) {
        t.data = arena_push(&r->w->a, bytes);
        if (!t.data) return ctx_no_memory(r->ctx, bytes, row->name);
    }
    for (int i = 0; copied && i < f.parts; at += tensor_bytes(part[i++])) {
        char *to = (char *)t.data + at;
        if (f.transposed) foreign_transpose(to, part[i]->data, part[i]->dim[1], part[i]->dim[0], element);
        else if (f.last) channels_first(to, part[i]->data, t.dim, element);
        else memcpy(to, part[i]->data, tensor_bytes(part[i]));
        if (f.parts > 1) weights_drop_pages(r->w, part[i]);
    }
    return weights_add(r->ctx, r->w, row->name, &t);
}

/* Takes an optional scalar: shape () or (1), any supported type. */
static cloob_status take_scalar(reader *r, const char *canonical)
{
    foreign f;
    names_foreign(r->s.names, canonical, &f);
    int64_t at = source_find(&r->s, f.name[0]);
    if (at < 0) return CLOOB_OK;
    tensor t = r->s.entry[at].t;
    r->s.used[at] = true;
    tensor want = tensor_make(t.dtype, 0, NULL, NULL);
    if (tensor_count(&t) != 1) return report_shape(r, f.name[0], &t, &want);
    want.data = t.data;
    return weights_add(r->ctx, r->w, canonical, &want);
}

/* Takes a batch norm's count of batches. It has no effect on results, and is kept for conversion to other formats. */
static cloob_status take_count(reader *r, const char *running_var)
{
    char name[NAME_BYTES];
    size_t n = strlen(running_var) - strlen("running_var");
    snprintf(name, sizeof name, "%.*snum_batches_tracked", (int)n, running_var);
    return take_scalar(r, name);
}

static cloob_status take_all(reader *r)
{
    arena a = { 0 };
    st_entry *row;
    int64_t count;
    cloob_status status = model_shapes(r->ctx, &a, &r->w->config, &row, &count);
    for (int64_t i = 0; status == CLOOB_OK && i < count; i++) {
        fold_result fold = { 0 };
        if (model_config_is_folded(&r->w->config) && !r->s.native)
            status = fold_row(r->ctx, &r->s, r->w, row, i, &fold);
        if (status == CLOOB_OK && fold.missing[0]) status = report_key(r, KEY_MISSING, fold.missing);
        if (status == CLOOB_OK && !fold.folded) status = take(r, &row[i]);
        if (status == CLOOB_OK && text_ends_with(row[i].name, ".running_var")) status = take_count(r, row[i].name);
    }
    if (status == CLOOB_OK) status = take_scalar(r, "logit_scale");
    if (status == CLOOB_OK) status = take_scalar(r, "logit_bias");
    if (status == CLOOB_OK) status = take_scalar(r, "logit_scale_hopfield");
    arena_release(&a);
    return status;
}

/* Whether an unused tensor is ignored: buffers of published files that follow from the configuration, and a BERT's
 * unused pooler. */
static bool is_ignored(const char *name)
{
    static const char *const tails[] = { "attn_mask",
                                         "position_ids",
                                         "input_resolution",
                                         "context_length",
                                         "vocab_size",
                                         "transformer.pooler.dense.weight",
                                         "transformer.pooler.dense.bias" };
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++)
        if (text_ends_with(name, tails[i])) return true;
    return false;
}

/* Whether a key belongs to the training state or its checksum, which are not converted. */
static bool is_training(const char *name)
{
    return strncmp(name, "train.", 6) == 0 || strncmp(name, "digest.", 7) == 0 || strcmp(name, "checksum") == 0 ||
           strcmp(name, "file_version") == 0;
}

static cloob_status report_unused(reader *r)
{
    for (int64_t i = 0; i < r->s.count; i++) {
        const char *name = r->s.entry[i].name;
        if (r->s.used[i] || (r->s.native && is_training(name))) continue;
        CLOOB_TRY(report_key(r, is_ignored(name) ? KEY_IGNORED : KEY_UNEXPECTED, name));
    }
    return CLOOB_OK;
}

/* ---- metadata ------------------------------------------------------------------------------------ */

static cloob_status meta_number(reader *r, const char *tensor_name, const char *key)
{
    char text[40];
    float log_value;
    const tensor *t = weights_find(r->w, tensor_name);
    if (!t || !dtype_convert(CLOOB_F32, &log_value, t->dtype, t->data, 1)) return CLOOB_OK;
    snprintf(text, sizeof text, "%.7g", exp((double)log_value)); /* the digits of a float; the tensor has the exact
                                                                  * value */
    return weights_set_meta(r->ctx, r->w, key, text);
}

static cloob_status take_metadata(reader *r)
{
    char text[32];
    int64_t epoch;
    const st_file *st = &r->w->st;
    for (int64_t i = 0; r->s.native && i < st->meta_count; i++) {
        const char *key = st->meta[i].key;
        if (strcmp(key, "train.epoch") == 0) key = "epoch";
        if (!is_training(key)) CLOOB_TRY(weights_set_meta(r->ctx, r->w, key, st->meta[i].value));
    }
    if (pk_int(pk_get(r->w->torch.root, "epoch"), &epoch)) {
        snprintf(text, sizeof text, "%lld", (long long)epoch);
        CLOOB_TRY(weights_set_meta(r->ctx, r->w, "epoch", text));
    }
    const char *run = pk_text(pk_get(r->w->torch.root, "name"));
    if (run) CLOOB_TRY(weights_set_meta(r->ctx, r->w, "run", run));
    if (!weights_get_meta(r->w, "inv_tau")) CLOOB_TRY(meta_number(r, "logit_scale", "inv_tau"));
    if (!weights_get_meta(r->w, "scale_hopfield")) CLOOB_TRY(meta_number(r, "logit_scale_hopfield", "scale_hopfield"));
    return CLOOB_OK;
}

/* ---- all of it ----------------------------------------------------------------------------------- */

static cloob_status read_all(reader *r, const char *path)
{
    CLOOB_TRY(open_file(r, path));
    CLOOB_TRY(source_index(r->ctx, path, r->w, &r->s));
    r->report->names = r->s.native ? "cloob" : names_whose(r->s.names);
    CLOOB_TRY(interchange_config(r->ctx, r->o, &r->s, r->w, &r->report->config));
    CLOOB_TRY(take_all(r));
    CLOOB_TRY(report_unused(r));
    CLOOB_TRY(check_report(r));
    return take_metadata(r);
}

cloob_status interchange_read(cloob_ctx *ctx, const char *path, const interchange_options *options, weights *w,
                              interchange_report *report)
{
    static const interchange_options defaults = { 0 };
    char file[FILE_PATH];
    *report = (interchange_report){ 0 };
    weights_init(w);
    reader r = { .ctx = ctx, .o = options ? options : &defaults, .w = w, .report = report };
    cloob_status status = pick_file(ctx, path, file);
    if (status == CLOOB_OK) status = read_all(&r, file);
    if (status != CLOOB_OK) weights_release(w);
    return status;
}
