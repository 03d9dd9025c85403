/* Small models as open_clip and transformers save them (tests/ref/towers, tests/ref/make/make_towers_ref.py):
 * embeddings and gradients against PyTorch's, and weights converted to the peer's form and back. */
#include "check.h"
#include "procedural.h"

#include "core/file.h"
#include "graph/exec.h"
#include "io/torch/torchfile.h"
#include "model/interchange.h"
#include "model/tower.h"

static cloob_ctx *ctx;

enum { ROWS = 3, MOST = 16384 };

/* What PyTorch found: under the weights' names the gradients. */
typedef struct peer {
    weights model, gradients;
    st_file expected;
} peer;

static void path_of(const char *folder, const char *file, char path[512])
{
    snprintf(path, 512, TESTS_DIR "/ref/towers/%s/%s", folder, file);
}

static void read_weights(const char *path, const interchange_options *o, weights *w)
{
    interchange_report report;
    CHECK_OK(ctx, interchange_read(ctx, path, o, w, &report));
    interchange_report_release(&report);
}

/* The model of a folder; where its own files do not have the sizes, they are in cloob.json. */
static void read_model(const char *folder, weights *w)
{
    char path[512], file[512];
    model_config c;
    path_of(folder, "cloob.json", path);
    bool own = file_exists(path);
    if (own) CHECK_OK(ctx, model_config_load(ctx, path, &c));
    path_of(folder, "model.pkl", file);
    if (!file_exists(file)) path_of(folder, "", file);
    read_weights(file, own ? &(interchange_options){ .config = &c } : NULL, w);
}

static void open_peer(const char *folder, peer *p)
{
    char path[512];
    read_model(folder, &p->model);
    interchange_options o = { .config = &p->model.config, .drop_unexpected = true };
    path_of(folder, "gradients.safetensors", path);
    CHECK_OK(ctx, st_open(ctx, path, &p->expected));
    if (!model_config_is_folded(&p->model.config)) {
        read_weights(path, &o, &p->gradients);
        return;
    }
    weights_init(&p->gradients); /* of the folded weights, under cloob's names */
    for (int64_t i = 0; i < p->expected.count; i++)
        CHECK_OK(ctx, weights_add(ctx, &p->gradients, p->expected.entry[i].name, &p->expected.entry[i].t));
}

static void close_peer(peer *p)
{
    st_close(&p->expected);
    weights_release(&p->model);
    weights_release(&p->gradients);
}

static const tensor *expected(const peer *p, const char *side, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "expected.%s%s", what, side);
    const st_entry *e = st_find(&p->expected, name);
    CHECK(e);
    return e ? &e->t : NULL;
}

/* Inputs of a tower are host memory: ref and cpu. */
static void fill(exec *e, const char *input, const tensor *from)
{
    const tensor *to = exec_tensor(e, input);
    bool fits = to && from && tensor_bytes(to) == tensor_bytes(from);
    CHECK(fits);
    if (fits) memcpy(to->data, from->data, tensor_bytes(to));
}

/* Gradients of one tower: every one relative to the largest gradient of the tower, so that those that are 0 count. */
static double gradient_error(const peer *p, const params *have, bool image)
{
    float got[MOST];
    double largest = 0, worst = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < have->count; i++) {
            const param *row = &have->row[i];
            const tensor *want = weights_find(&p->gradients, row->name);
            bool counts = want && row->count <= MOST && !row->buffer;
            CHECK(counts || row->buffer);
            if (!counts || (strncmp(row->name, "visual.", 7) == 0) != image) continue;
            if (pass) CHECK_OK(ctx, params_get(ctx, have, i, true, got));
            for (int64_t k = 0; k < row->count; k++) {
                double w = (double)((const float *)want->data)[k];
                if (!pass) largest = fmax(largest, fabs(w));
                else worst = fmax(worst, fabs((double)got[k] - w) / largest);
            }
        }
    return worst;
}

static void check_tower(const peer *p, params *have, bool image, const char *name, bool train)
{
    const char *side = image ? "image" : "text";
    tower_options o = { .batch = ROWS, .train = train, .backward = train, .float_images = !have->config.position_side };
    graph g;
    exec *e = NULL;
    exec_bindings bind = { .param = have->compute_view, .master = have->master_view, .grad = have->grad_view };
    if (image ? have->config.no_image_tower : have->config.no_text_tower) {
        CHECK((image ? tower_image(ctx, have, &o, &g) : tower_text(ctx, have, &o, &g)) == CLOOB_ERR_UNSUPPORTED);
        CHECK(strstr(cloob_error(ctx), image ? "has no image tower" : "has no text tower"));
        graph_release(&g);
        return;
    }
    CHECK_OK(ctx, image ? tower_image(ctx, have, &o, &g) : tower_text(ctx, have, &o, &g));
    CHECK_OK(ctx, exec_create(ctx, &g, have->dev, &bind, &e));
    graph_release(&g);
    if (!e) return;
    fill(e, image ? "images" : "tokens", expected(p, image ? "images" : "tokens", ""));
    CHECK_OK(ctx, exec_forward(e));
    const tensor *raw = exec_tensor(e, "raw"), *want = expected(p, side, "");
    double error = relative_error(raw->data, want->data, tensor_count(want), 1e-6), slope = 0;
    if (train) {
        fill(e, "doutput", expected(p, side, "d"));
        CHECK_OK(ctx, exec_backward(e));
        slope = gradient_error(p, have, image);
    }
    printf("  %s, %s: %.2e, gradients %.2e\n", name, side, error, slope);
    CHECK(error < 2e-5 && slope < 5e-5);
    exec_destroy(e);
}

static void check_peer(const char *name)
{
    static const char *const where[] = { "ref", "cpu" };
    peer p = { 0 };
    open_peer(name, &p);
    for (int w = 0; w < 2 && p.model.count; w++)
        for (int train = 0; train < 2; train++) {
            device *dev;
            params *have;
            CHECK_OK(ctx, device_open(ctx, where[w], &dev));
            CHECK_OK(ctx, params_create(ctx, &p.model.config, dev, CLOOB_F32, PARAMS_TRAIN, &have));
            CHECK_OK(ctx, params_load(ctx, have, &p.model));
            check_tower(&p, have, true, name, train);
            check_tower(&p, have, false, name, train);
            params_destroy(have);
            device_close(dev);
        }
    close_peer(&p);
}

static float largest_difference(const tensor *a, const tensor *b)
{
    float worst = 0;
    for (int64_t i = 0; i < tensor_count(a); i++)
        worst = fmaxf(worst, fabsf(((const float *)a->data)[i] - ((const float *)b->data)[i]));
    return worst;
}

/* rinna's config.json has the scales of the objective; without a beta the model is written as rinna's CLIP. */
static void check_scales(weights *w, const char *folder)
{
    weights back;
    read_weights(folder, NULL, &back);
    for (int i = 0; i < 2; i++) {
        const weights *from = i ? &back : w;
        CHECK_STR(weights_get_meta(from, "inv_tau"), "30");
        CHECK_STR(weights_get_meta(from, "scale_hopfield"), "15");
        CHECK_STR(weights_get_meta(from, "method"), "cloob");
    }
    weights_release(&back);
    interchange_report report;
    CHECK(system("sed -i 's/\"init_inv_tau\":30/\"init_inv_tau\":-1/' peers_rinna/config.json") == 0);
    CHECK(interchange_read(ctx, folder, NULL, &back, &report) == CLOOB_ERR_FORMAT);
    CHECK(strstr(cloob_error(ctx), "init_inv_tau"));
    interchange_report_release(&report);
    weights_release(&back);
    CHECK_OK(ctx, weights_set_meta(ctx, w, "scale_hopfield", "0"));
    CHECK_OK(ctx, interchange_write(ctx, "peers_rinna_clip", FORMAT_HF, w));
    read_weights("peers_rinna_clip", NULL, &back);
    CHECK(!weights_get_meta(&back, "scale_hopfield") && weights_find(&back, "logit_scale"));
    CHECK_STR(weights_get_meta(&back, "inv_tau"), "30");
    weights_release(&back);
}

/* To cloob's format, from there to the peer's, and read again: the same tensors. Unfolded layers differ by rounding. */
static void check_conversion(const char *name)
{
    static const weight_format formats[] = { FORMAT_NATIVE, FORMAT_OPEN_CLIP, FORMAT_HF };
    char path[512], folder[256];
    weights w, back;
    read_model(name, &w);
    path_of(name, "config.json", path);
    bool own_sizes = !file_exists(path), hf = !own_sizes || model_config_hf_kind(&w.config) == HF_MCLIP;
    int count = w.config.mask_queries ? 1 : 2; /* crowsonkb's CLOOB is read only */
    for (int i = 0; i < count && w.count; i++) {
        snprintf(folder, sizeof folder, "peers_%s%s", name, i ? "" : ".safetensors");
        CHECK_OK(ctx, interchange_write(ctx, folder, i ? formats[1 + hf] : FORMAT_NATIVE, &w));
        read_weights(folder, i && own_sizes ? &(interchange_options){ .config = &w.config } : NULL, &back);
        CHECK(back.count >= w.count);
        for (int64_t k = 0; k < w.count; k++) {
            const tensor *t = weights_find(&back, w.entry[k].name);
            bool same = t && tensor_same_shape(t, &w.entry[k].t);
            if (same && i && model_config_is_folded(&w.config)) same = largest_difference(t, &w.entry[k].t) < 2e-6F;
            else same = same && memcmp(t->data, w.entry[k].t.data, tensor_bytes(t)) == 0;
            CHECK(same);
        }
        weights_release(&back);
    }
    if (strcmp(name, "rinna") == 0) check_scales(&w, folder);
    if (model_config_is_folded(&w.config))
        CHECK(interchange_write(ctx, "peers_folded", FORMAT_HF, &w) == CLOOB_ERR_UNSUPPORTED);
    weights_release(&w);
}

/* The image embeddings of weights, ROWS of them, into `raw`. */
static void embed(const weights *w, const tensor *images, float *raw)
{
    device *dev;
    params *have;
    graph g;
    exec *e = NULL;
    tower_options o = { .batch = ROWS, .float_images = true };
    CHECK_OK(ctx, device_open(ctx, "ref", &dev));
    CHECK_OK(ctx, params_create(ctx, &w->config, dev, CLOOB_F32, PARAMS_TRAIN, &have));
    CHECK_OK(ctx, params_load(ctx, have, w));
    CHECK_OK(ctx, tower_image(ctx, have, &o, &g));
    exec_bindings bind = { .param = have->compute_view, .master = have->master_view };
    CHECK_OK(ctx, exec_create(ctx, &g, dev, &bind, &e));
    graph_release(&g);
    fill(e, "images", images);
    CHECK_OK(ctx, exec_forward(e));
    memcpy(raw, exec_tensor(e, "raw")->data, (size_t)(ROWS * w->config.embed) * sizeof *raw);
    exec_destroy(e);
    params_destroy(have);
    device_close(dev);
}

/* A folded model after training in cloob: its biases are no longer those of a batch norm, and the class token's
 * position is not 0. timm's form of it has the same embeddings. */
static void trained_folded_models_are_unfolded(void)
{
    static const char *const names[] = { "vit_stem", "fastvit", "fastvit_five" };
    float before[ROWS * 64], after[ROWS * 64];
    for (int i = 0; i < 3; i++) {
        peer p = { 0 };
        weights back;
        open_peer(names[i], &p);
        CHECK(p.model.count && p.model.config.embed <= 64);
        for (int64_t k = 0; k < p.model.count; k++) {
            st_entry *e = &p.model.entry[k];
            const char *leaf = strrchr(e->name, '.');
            bool changed = (leaf && strcmp(leaf, ".bias") == 0) || strcmp(e->name, "visual.positional_embedding") == 0;
            if (!changed || !model_is_image(e->name)) continue;
            float *to = memcpy(arena_push(&p.model.a, tensor_bytes(&e->t)), e->t.data, tensor_bytes(&e->t));
            for (int64_t n = 0; n < tensor_count(&e->t); n++) to[n] += (float)procedural(e->name, n);
            e->t.data = to;
        }
        CHECK_OK(ctx, interchange_write(ctx, "peers_trained", FORMAT_OPEN_CLIP, &p.model));
        read_weights("peers_trained", &(interchange_options){ .config = &p.model.config }, &back);
        embed(&p.model, expected(&p, "images", ""), before);
        embed(&back, expected(&p, "images", ""), after);
        double error = relative_error(after, before, ROWS * p.model.config.embed, 1e-6);
        printf("  %s, trained and converted back: %.2e\n", names[i], error);
        CHECK(error < 1e-5);
        weights_release(&back);
        close_peer(&p);
    }
}

static void every_peer(void)
{
    static const char *const names[] = { "roberta",       "bert",
                                         "chinese_clip",  "convnext",
                                         "convnext_mlp",  "eva02",
                                         "eva_giant",     "eva_enormous",
                                         "pe_core",       "pe_core_bare",
                                         "timm_vit",      "vit_stem",
                                         "fastvit",       "fastvit_five",
                                         "crowson",       "rinna",
                                         "clip_vision",   "clip_vision_projection",
                                         "clip_text",     "clip_text_projection",
                                         "siglip_vision", "siglip_text",
                                         "mclip",         "naflex" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_peer(names[i]);
        check_conversion(names[i]);
    }
}

/* A pickle of arrays that is cut short anywhere, or has a byte changed, is refused or read; nothing is run. */
static void damaged_arrays_are_refused(void)
{
    char path[512];
    file_map map;
    torch_file f;
    path_of("crowson", "model.pkl", path);
    CHECK_OK(ctx, file_map_open(ctx, path, &map));
    unsigned char *copy = malloc(map.size);
    CHECK(copy && arrays_looks_like(map.data, map.size));
    for (size_t size = 3; copy && size < map.size; size += 997)
        CHECK(arrays_open_bytes(ctx, map.data, size, "cut", &f) == CLOOB_ERR_FORMAT);
    for (size_t at = 2; copy && at < 4096; at += 3) {
        memcpy(copy, map.data, map.size);
        copy[at] ^= 0x15;
        if (arrays_open_bytes(ctx, copy, map.size, "changed", &f) == CLOOB_OK) torch_close(&f);
    }
    free(copy);
    file_map_close(&map);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(every_peer);
    RUN(trained_folded_models_are_unfolded);
    RUN(damaged_arrays_are_refused);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
