/* Tokenizers of model folders: selects the file and the cleaning. Also finds CLIP's merges in Python packages, and
 * writes files for transformers. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/needs.h"
#include "data/text/tokenizer_impl.h"
#include "io/gzip.h"

enum { FILE_LIMIT = 1 << 27 }; /* bytes of a vocabulary file; XLM-V's has 50 MB */

/* ---- configuration of a folder ----------------------------------------------------------------------- */

typedef struct folder_config {
    arena a;
    tokenizer_config c;
    bool open_clip;  /* texts are cleaned as in open_clip */
    bool hf_in_clip; /* open_clip uses its HFTokenizer */
    bool cased;      /* do_lower_case is false */
    bool rinna;      /* a model of rinna's Japanese CLIP or CLOOB */
} folder_config;

/* The text of a token: a string, or {"content": string}. */
static const char *token_text(const json *v)
{
    return json_string(v) ? json_string(v) : json_string(json_get(v, "content"));
}

static bool in_folder(const char *folder, const char *name)
{
    char path[FILE_PATH];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < FILE_PATH && file_exists(path);
}

/* *root stays NULL if the file does not exist. */
static cloob_status read_json(cloob_ctx *ctx, const char *folder, const char *name, arena *a, json **root)
{
    char path[FILE_PATH];
    *root = NULL;
    if (!in_folder(folder, name)) return CLOOB_OK;
    CLOOB_TRY(file_in(ctx, folder, name, path));
    return json_read_file(ctx, a, path, root);
}

static void read_tokenizer_config(const json *root, folder_config *f)
{
    bool add, lower = true;
    const char *side = json_string(json_get(root, "padding_side"));
    f->c.class_name = json_string(json_get(root, "tokenizer_class"));
    f->c.pad = token_text(json_get(root, "pad_token"));
    f->c.bos = token_text(json_get(root, "bos_token"));
    f->c.eos = token_text(json_get(root, "eos_token"));
    f->c.pad_side = side != NULL;
    f->c.pad_left = side && strcmp(side, "left") == 0;
    if (json_bool(json_get(root, "add_bos_token"), &add)) f->c.add_bos = add ? 1 : -1;
    if (json_bool(json_get(root, "add_eos_token"), &add)) f->c.add_eos = add ? 1 : -1;
    json_bool(json_get(root, "do_lower_case"), &lower);
    f->cased = !lower;
}

/* Reads open_clip's text_cfg: hf_tokenizer_name, tokenizer_mode, tokenizer_kwargs. */
static cloob_status read_text_cfg(cloob_ctx *ctx, const json *text, const char *folder, folder_config *f)
{
    static const char *const ways[] = { "whitespace", "lower", "canonicalize" };
    const json *kwargs = json_get(text, "tokenizer_kwargs");
    const char *name = json_string(json_get(text, "hf_tokenizer_name")),
               *mode = json_string(json_get(text, "tokenizer_mode"));
    f->hf_in_clip = name && *name;
    f->c.prepare = f->hf_in_clip ? PREPARE_WHITESPACE : PREPARE_LOWER;
    if (mode && *mode)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: tokenizer_mode \"%.60s\" is not supported", folder, mode);
    for (const json *e = json_first(kwargs); e; e = json_next(e)) {
        const char *value = json_string(e);
        int way = -1;
        for (int i = 0; value && strcmp(e->key, "clean") == 0 && i < 3; i++)
            if (strcmp(value, ways[i]) == 0) way = i;
        if (way >= 0) f->c.prepare = (preparation)(PREPARE_WHITESPACE + way);
        else if (strcmp(e->key, "strip_sep_token") == 0) json_bool(e, &f->c.strip_sep);
        else
            return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: \"%.60s\" in tokenizer_kwargs is not supported", folder,
                            e->key);
    }
    return CLOOB_OK;
}

/* Whether the weights are read as open_clip's: they are preferred if the folder also has transformers' weights. */
static bool is_open_clip(const char *folder)
{
    static const char *const weights[] = { "open_clip_model.safetensors", "open_clip_pytorch_model.bin",
                                           "open_clip_model.safetensors.index.json" };
    if (!in_folder(folder, "open_clip_config.json")) return false;
    for (int i = 0; i < 3; i++)
        if (in_folder(folder, weights[i])) return true;
    return !in_folder(folder, "config.json");
}

/* Detects rinna's models: their texts have a class token at the start and no end token, which the folder's files do not
 * specify. */
static cloob_status find_rinna(cloob_ctx *ctx, const char *folder, folder_config *f)
{
    json *root;
    CLOOB_TRY(read_json(ctx, folder, "config.json", &f->a, &root));
    const char *type = json_string(json_get(json_get(root, "vision_config"), "model_type"));
    f->rinna = type && strcmp(type, "vit") == 0;
    if (f->rinna && !in_folder(folder, "spiece.model"))
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: spiece.model is missing for rinna's model; copy the file from rinna/japanese-roberta-base "
                        "into the folder",
                        folder);
    return CLOOB_OK;
}

static cloob_status read_config(cloob_ctx *ctx, const char *folder, folder_config *f)
{
    json *own, *clip;
    *f = (folder_config){ .open_clip = is_open_clip(folder) };
    CLOOB_TRY(read_json(ctx, folder, "tokenizer_config.json", &f->a, &own));
    if (own) read_tokenizer_config(own, f);
    if (!f->open_clip) return find_rinna(ctx, folder, f);
    CLOOB_TRY(read_json(ctx, folder, "open_clip_config.json", &f->a, &clip));
    return read_text_cfg(ctx, json_get(json_get(clip, "model_cfg"), "text_cfg"), folder, f);
}

/* ---- files ------------------------------------------------------------------------------------------- */

static cloob_status open_bytes(cloob_ctx *ctx, const file_bytes *file, const char *path, const tokenizer_config *c,
                               tokenizer **out)
{
    sbuf plain = { 0 };
    const char *text = (const char *)file->data;
    if (pieces_is_model(file->data, file->size)) return pieces_read_model(ctx, file->data, file->size, path, out);
    bool own = pieces_is_text(text, file->size) || json_form_is_text(text, file->size);
    if (file->size && text[0] == '{' && !own) return tokenizer_read_json(ctx, text, file->size, path, c, out);
    if (!gzip_is(file->data, file->size)) return tokenizer_open_text(ctx, text, file->size, path, out);
    cloob_status status = gzip_expand(ctx, file->data, file->size, FILE_LIMIT, path, &plain);
    if (status == CLOOB_OK) status = tokenizer_open_text(ctx, plain.data ? plain.data : "", plain.len, path, out);
    sbuf_release(&plain);
    return status;
}

static cloob_status open_file(cloob_ctx *ctx, const char *path, const tokenizer_config *c, tokenizer **out)
{
    file_bytes file;
    *out = NULL;
    if (!uni_complete())
        ctx_log(ctx, CLOOB_LOG_WARN, "built without utf8proc: ids of texts beyond ASCII may differ from CLIP's");
    CLOOB_TRY(file_read(ctx, path, FILE_LIMIT, &file));
    cloob_status status = open_bytes(ctx, &file, path, c, out);
    file_bytes_release(&file);
    return status;
}

/* Reads vocab.json with merges.txt, or vocab.txt, by converting it to a tokenizer.json. */
static cloob_status open_old(cloob_ctx *ctx, const char *folder, const folder_config *f, bool merges, tokenizer **out)
{
    char path[2][FILE_PATH];
    file_bytes file[2] = { { 0 } };
    sbuf text = { 0 };
    bool roberta = f->c.class_name && strncmp(f->c.class_name, "Roberta", 7) == 0;
    CLOOB_TRY(file_in(ctx, folder, merges ? "vocab.json" : "vocab.txt", path[0]));
    CLOOB_TRY(file_in(ctx, folder, "merges.txt", path[1]));
    cloob_status status = CLOOB_OK;
    for (int i = 0; i < 1 + merges && status == CLOOB_OK; i++) status = file_read(ctx, path[i], FILE_LIMIT, &file[i]);
    if (status == CLOOB_OK && merges)
        json_from_merges(!roberta, file[0].data, file[0].size, file[1].data, file[1].size, &text);
    else if (status == CLOOB_OK) json_from_vocab_txt(file[0].data, file[0].size, !f->cased, &text);
    if (status == CLOOB_OK && text.failed) status = ctx_no_memory(ctx, text.len, path[0]);
    if (status == CLOOB_OK) status = tokenizer_read_json(ctx, text.data, text.len, path[0], &f->c, out);
    for (int i = 0; i < 2; i++) file_bytes_release(&file[i]);
    sbuf_release(&text);
    return status;
}

static cloob_status open_in(cloob_ctx *ctx, const char *folder, const folder_config *f, tokenizer **out)
{
    static const char *const files[] = { "spiece.model", "tokenizer.json", "tokenizer.model" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (!in_folder(folder, files[i])) continue;
        char path[FILE_PATH];
        CLOOB_TRY(file_in(ctx, folder, files[i], path));
        return open_file(ctx, path, &f->c, out);
    }
    if (in_folder(folder, "vocab.json") && in_folder(folder, "merges.txt")) return open_old(ctx, folder, f, true, out);
    return in_folder(folder, "vocab.txt") ? open_old(ctx, folder, f, false, out) : CLOOB_OK;
}

/* Sets the cleaning. The merges of an open_clip folder are used as by its SimpleTokenizer, unless the folder names a
 * tokenizer of transformers. */
static cloob_status set_origin(cloob_ctx *ctx, const char *folder, const folder_config *f, tokenizer *t)
{
    if (t->form == FORM_PIECES && f->rinna) return pieces_set_rinna(ctx, t, folder);
    if (t->form == FORM_PIECES && !f->open_clip && t->p.model == PIECES_UNIGRAM) return pieces_set_siglip(ctx, t);
    if (t->form != FORM_MERGES || !f->open_clip || f->hf_in_clip) return CLOOB_OK;
    t->pad = 0;
    t->pad_special = false;
    tokenizer_set_clean(t, CLEAN_FULL);
    return CLOOB_OK;
}

static cloob_status open_dir(cloob_ctx *ctx, const char *folder, tokenizer **out)
{
    folder_config f;
    cloob_status status = read_config(ctx, folder, &f);
    if (status == CLOOB_OK) status = open_in(ctx, folder, &f, out);
    if (status == CLOOB_OK && *out) status = tokenizer_or_close(set_origin(ctx, folder, &f, *out), out);
    arena_release(&f.a);
    return status;
}

cloob_status cloob_tokenizer_open(cloob_ctx *ctx, const char *path, tokenizer **out)
{
    API_NEEDS(ctx, path && out);
    *out = NULL;
    if (!file_is_dir(path)) return open_file(ctx, path, NULL, out);
    CLOOB_TRY(open_dir(ctx, path, out));
    return *out ? CLOOB_OK
                : ctx_fail(ctx, CLOOB_ERR_IO,
                           "%s: no tokenizer in this folder (spiece.model, tokenizer.json, tokenizer.model, vocab.json "
                           "with merges.txt, or vocab.txt)",
                           path);
}

cloob_status tokenizer_open_folder(cloob_ctx *ctx, const char *path, int64_t vocab, tokenizer **out)
{
    char *folder = strdup(path), *slash = folder ? strrchr(folder, '/') : NULL;
    cloob_status status = folder ? CLOOB_OK : ctx_no_memory(ctx, strlen(path), path);
    *out = NULL;
    if (folder && !file_is_dir(folder)) { /* a file of weights next to its configuration */
        if (slash) *slash = '\0';
        else strcpy(folder, "."); /* fits: the path is not empty */
        if (!in_folder(folder, "config.json") && !in_folder(folder, "open_clip_config.json")) folder[0] = '\0';
    }
    if (folder && *folder) status = open_dir(ctx, folder, out);
    if (status == CLOOB_ERR_UNSUPPORTED || status == CLOOB_ERR_FORMAT) {
        ctx_log(ctx, CLOOB_LOG_WARN, "%s; texts cannot be encoded without a vocabulary", cloob_error(ctx));
        status = CLOOB_OK;
    }
    if (status == CLOOB_OK && *out && cloob_tokenizer_vocab_size(*out) < vocab) (*out)->smaller = true;
    if (status == CLOOB_OK && *out && !tokenizer_fits(*out, vocab)) {
        ctx_log(ctx, CLOOB_LOG_WARN, "%s: ignoring its tokenizer, which has %d tokens while the model has %lld", folder,
                cloob_tokenizer_vocab_size(*out), (long long)vocab);
        cloob_tokenizer_close(*out);
        *out = NULL;
    }
    free(folder);
    return status;
}

/* ---- CLIP's merges on this machine ------------------------------------------------------------------- */

/* Glob patterns; %s is the value of the environment variable. */
static const char *const places[][2] = {
    { "VIRTUAL_ENV", "%s/lib/python3*/site-packages/open_clip/bpe_simple_vocab_16e6.txt.gz" },
    { "VIRTUAL_ENV", "%s/lib/python3*/site-packages/clip/bpe_simple_vocab_16e6.txt.gz" },
    { "CONDA_PREFIX", "%s/lib/python3*/site-packages/open_clip/bpe_simple_vocab_16e6.txt.gz" },
    { "CONDA_PREFIX", "%s/lib/python3*/site-packages/clip/bpe_simple_vocab_16e6.txt.gz" },
    { "HOME", "%s/.local/lib/python3*/site-packages/open_clip/bpe_simple_vocab_16e6.txt.gz" },
    { "HOME", "%s/.local/lib/python3*/site-packages/clip/bpe_simple_vocab_16e6.txt.gz" },
    { NULL, "/usr/local/lib/python3*/*-packages/open_clip/bpe_simple_vocab_16e6.txt.gz" },
    { NULL, "/usr/lib/python3*/*-packages/open_clip/bpe_simple_vocab_16e6.txt.gz" },
    { "HOME", "%s/.cache/clip/bpe_simple_vocab_16e6.txt.gz" },
    { "HF_HUB_CACHE", "%s/models--openai--clip-vit-*/snapshots/*/merges.txt" },
    { "HUGGINGFACE_HUB_CACHE", "%s/models--openai--clip-vit-*/snapshots/*/merges.txt" },
    { "HF_HOME", "%s/hub/models--openai--clip-vit-*/snapshots/*/merges.txt" },
    { "XDG_CACHE_HOME", "%s/huggingface/hub/models--openai--clip-vit-*/snapshots/*/merges.txt" },
    { "HOME", "%s/.cache/huggingface/hub/models--openai--clip-vit-*/snapshots/*/merges.txt" },
};

static bool find_place(int i, char *path, size_t size)
{
    char pattern[1024];
    glob_t found;
    const char *base = places[i][0] ? getenv(places[i][0]) : "";
    if (!base || (places[i][0] && !*base)) return false;
    if (places[i][0]) snprintf(pattern, sizeof pattern, "%s%s", base, places[i][1] + 2);
    else snprintf(pattern, sizeof pattern, "%s", places[i][1]);
    bool hit = glob(pattern, 0, NULL, &found) == 0;
    bool fits = hit && strlen(found.gl_pathv[0]) < size;
    if (fits) snprintf(path, size, "%s", found.gl_pathv[0]);
    if (hit) globfree(&found);
    return fits;
}

cloob_status tokenizer_find_clip(cloob_ctx *ctx, tokenizer **out, char *path, size_t size)
{
    *out = NULL;
    for (int i = 0; i < (int)(sizeof places / sizeof *places); i++) {
        if (!find_place(i, path, size)) continue;
        cloob_status status = open_file(ctx, path, NULL, out);
        if (status == CLOOB_ERR_MEMORY) return status;
        if (status == CLOOB_OK && (*out)->form == FORM_MERGES && (*out)->p.count == CLIP_VOCAB) return CLOOB_OK;
        cloob_tokenizer_close(*out);
        *out = NULL;
    }
    return CLOOB_OK;
}

/* ---- writing ----------------------------------------------------------------------------------------- */

static cloob_status write_part(cloob_ctx *ctx, const char *folder, const char *name, sbuf *text)
{
    cloob_status status = text->failed ? ctx_no_memory(ctx, text->len, name) : file_write_in(ctx, folder, name, text);
    sbuf_release(text);
    return status;
}

static void put_vocab(const pieces *p, sbuf *out)
{
    json_out w = json_out_on(out);
    json_begin(&w, NULL, '{');
    for (int32_t id = 0; id < p->count; id++) {
        char key[2048];
        snprintf(key, sizeof key, "%.*s", (int)p->piece[id].bytes, p->text.data + p->piece[id].at);
        json_put_int(&w, key, id);
    }
    json_end(&w);
    json_out_back(&w, out);
}

static void put_config(const tokenizer *t, int64_t length, sbuf *out)
{
    static const char *const classes[] = { "CLIPTokenizer", "SiglipTokenizer" };
    json_out w = { 0 };
    bool rinna = t->form == FORM_PIECES && t->prefixes;
    const char *class_name = t->form == FORM_JSON ? t->class_name : rinna ? "T5Tokenizer" : classes[t->form];
    json_begin(&w, NULL, '{');
    if (*class_name) json_put_text(&w, "tokenizer_class", class_name);
    json_put_int(&w, "model_max_length", length);
    if (t->form == FORM_MERGES)
        json_members(&w, J_TEXT("bos_token", "<|startoftext|>"), J_TEXT("eos_token", "<|endoftext|>"),
                     J_TEXT("unk_token", "<|endoftext|>"), J_TEXT("pad_token", t->pad ? "<|endoftext|>" : "!"));
    else if (rinna)
        json_members(&w, J_TEXT("cls_token", "[CLS]"), J_TEXT("pad_token", "[PAD]"), J_TEXT("unk_token", "<unk>"),
                     J_BOOL("do_lower_case", true));
    else if (t->form == FORM_PIECES)
        json_members(&w, J_TEXT("eos_token", "</s>"), J_TEXT("unk_token", "<unk>"), J_TEXT("pad_token", "</s>"),
                     J_BOOL("do_lower_case", true));
    else {
        if (*t->pad_text) json_put_text(&w, "pad_token", t->pad_text);
        json_put_text(&w, "padding_side", t->pad_left ? "left" : "right");
    }
    json_end(&w);
    json_out_append(&w, out);
}

cloob_status tokenizer_export(cloob_ctx *ctx, const tokenizer *t, const char *folder, int64_t length)
{
    sbuf text = { 0 }, config = { 0 }, merges = { 0 };
    put_config(t, length, &config);
    CLOOB_TRY(write_part(ctx, folder, "tokenizer_config.json", &config));
    if (t->form == FORM_JSON) {
        sbuf_add(&text, t->source.data, t->source.len);
        return write_part(ctx, folder, "tokenizer.json", &text);
    }
    if (t->form == FORM_PIECES) {
        pieces_save_model(t, &text);
        return write_part(ctx, folder, t->p.model == PIECES_BPE ? "tokenizer.model" : "spiece.model", &text);
    }
    put_vocab(&t->p, &text);
    CLOOB_TRY(write_part(ctx, folder, "vocab.json", &text));
    sbuf_puts(&merges, "#version: 0.2\n");
    if (t->source.len) sbuf_add(&merges, t->source.data, t->source.len), sbuf_putc(&merges, '\n');
    return write_part(ctx, folder, "merges.txt", &merges);
}
