/* cloob_convert as a program outside sees it: options, the report, and failures that leave nothing behind. */
#include "check.h"

#include <unistd.h>

#include "cloob/cloob.h"
#include "core/arith.h"
#include "core/file.h"
#include "model/interchange.h"
#include "model/procedural_weights.h"

static cloob_ctx *ctx;
static const char *const state = "test_convert.tmp.pt", *const out = "test_convert.tmp.safetensors";

static void make_state(const char *model)
{
    model_config c;
    weights w;
    CHECK_OK(ctx, model_config_by_name(ctx, model, &c));
    CHECK_OK(ctx, procedural_weights(ctx, &c, &w));
    CHECK_OK(ctx, torch_write(ctx, state, w.entry, w.count, NULL));
    weights_release(&w);
}

static void a_report_lists_what_happened(void)
{
    cloob_convert_report r;
    make_state("tiny-vit");
    CHECK_OK(ctx, cloob_convert(ctx, state, out, NULL, &r));
    CHECK_STR(r.model, "tiny-vit");
    CHECK_STR(r.container, "torch zip");
    CHECK_STR(r.names, "OpenAI");
    CHECK(r.to == CLOOB_WEIGHTS_NATIVE && r.tensors == 61 && r.parameters > 400000 && r.bytes == 4 * r.parameters);
    CHECK(!r.count[CLOOB_KEY_MISSING] && !r.count[CLOOB_KEY_UNEXPECTED]);
    cloob_convert_report_release(&r);
    CHECK_OK(ctx, cloob_convert(ctx, out, state, NULL, &r)); /* by its ending: OpenAI's names */
    CHECK(r.to == CLOOB_WEIGHTS_OPENAI);
    CHECK_STR(r.names, "cloob");
    cloob_convert_report_release(&r);
    CHECK_OK(ctx, cloob_convert(ctx, state, out, NULL, NULL));
    remove(out);
}

static void texts_can_become_longer_and_weights_smaller(void)
{
    cloob_convert_options o;
    cloob_convert_report r;
    weights w;
    make_state("tiny-vit");
    cloob_convert_options_init(&o);
    o.context = 24;
    o.dtype = "bf16";
    CHECK_OK(ctx, cloob_convert(ctx, state, out, &o, NULL));
    CHECK_OK(ctx, weights_read_native(ctx, out, &w));
    const tensor *p = weights_find(&w, "positional_embedding");
    CHECK(w.config.context == 24 && p && p->dim[0] == 24 && p->dtype == CLOOB_BF16);
    weights_release(&w);
    CHECK_OK(ctx, cloob_weights_describe(ctx, out, NULL, &r));
    CHECK(strstr(r.config, "\"context_length\":24") != NULL);
    cloob_convert_report_release(&r);
    o.dtype = "int8";
    CHECK(cloob_convert(ctx, state, out, &o, NULL) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "int8"));
    o.context = 5, o.dtype = NULL;
    CHECK(cloob_convert(ctx, state, out, &o, NULL) == CLOOB_ERR_ARGUMENT);
    remove(out);
}

/* Long-CLIP's 248 positions out of 77: the first 20 stay, between the others come three more, and the last one
 * continues the slope. */
static void positions_are_stretched_as_long_clip_does(void)
{
    static const char *const given = "test_convert2.tmp.safetensors";
    cloob_convert_options o;
    model_config c;
    weights w, native;
    CHECK_OK(ctx, model_config_by_name(ctx, "tiny-vit", &c));
    c.context = 77;
    CHECK_OK(ctx, procedural_weights(ctx, &c, &w));
    CHECK_OK(ctx, interchange_write(ctx, given, FORMAT_NATIVE, &w));
    cloob_convert_options_init(&o);
    o.context = 248;
    CHECK_OK(ctx, cloob_convert(ctx, given, out, &o, NULL));
    CHECK_OK(ctx, weights_read_native(ctx, out, &native));
    const tensor *old = weights_find(&w, "positional_embedding"), *now = weights_find(&native, "positional_embedding");
    CHECK(now && now->dim[0] == 248 && now->dim[1] == old->dim[1]);
    int64_t width = old->dim[1];
    const float *a = old->data, *b = now->data;
    for (int64_t i = 0; i < 248; i++)
        for (int64_t k = 0; k < width; k++) {
            int64_t left = i < 20 ? i : min64(20 + (i - 20) / 4, 75);
            double part = i < 20 ? 0 : 20 + (double)(i - 20) / 4 - (double)left;
            CHECK_NEAR(b[i * width + k], a[left * width + k] + part * (a[(left + 1) * width + k] - a[left * width + k]),
                       1e-6);
        }
    weights_release(&w), weights_release(&native);
    remove(given), remove(out);
}

static void foreign_extensions_are_refused(void)
{
    make_state("tiny-vit");
    CHECK(cloob_convert(ctx, state, "test_convert.tmp.gguf", NULL, NULL) == CLOOB_ERR_UNSUPPORTED);
    CHECK(cloob_convert(ctx, state, "test_convert.tmp.onnx", NULL, NULL) == CLOOB_ERR_UNSUPPORTED);
    CHECK(strstr(cloob_error(ctx), "`to` hf") && !file_exists("test_convert.tmp.onnx"));
    remove(state);
}

static void a_file_can_be_described_without_writing(void)
{
    cloob_convert_report r;
    make_state("tiny-rn");
    CHECK_OK(ctx, cloob_weights_describe(ctx, state, NULL, &r));
    CHECK_STR(r.model, "tiny-rn");
    CHECK(strstr(r.config, "\"layers\":[1,2,1,1]") != NULL && !r.has_tokenizer);
    CHECK_STR(r.metadata, "{}");
    cloob_convert_report_release(&r);
    CHECK(cloob_weights_describe(ctx, "absent.pt", NULL, &r) == CLOOB_ERR_IO && !r.config);
    cloob_convert_report_release(&r);
    remove(state);
}

static void failures_list_keys_and_write_nothing(void)
{
    cloob_convert_options o;
    cloob_convert_report r;
    cloob_convert_options_init(&o);
    make_state("tiny-vit");
    o.config = "tiny-rn";
    CHECK(cloob_convert(ctx, state, out, &o, &r) == CLOOB_ERR_FORMAT);
    CHECK(r.count[CLOOB_KEY_MISSING] > 50 && r.count[CLOOB_KEY_UNEXPECTED] > 20 && r.count[CLOOB_KEY_MISSHAPED] == 1);
    CHECK(strchr(cloob_error(ctx), '\n') == NULL && strstr(cloob_error(ctx), "tiny-rn"));
    cloob_convert_report_release(&r);
    o.config = "no-such-model";
    CHECK(cloob_convert(ctx, state, out, &o, &r) == CLOOB_ERR_ARGUMENT);
    cloob_convert_report_release(&r);
    o.config = NULL, o.activation = "relu";
    CHECK(cloob_convert(ctx, state, out, &o, NULL) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "relu"));
    o.activation = NULL, o.vocab = "absent.txt";
    CHECK(cloob_convert(ctx, state, out, &o, NULL) == CLOOB_ERR_IO);
    CHECK(!file_exists(out));
    CHECK(cloob_convert(ctx, "absent.pt", out, NULL, &r) == CLOOB_ERR_IO);
    cloob_convert_report_release(&r);
    CHECK(cloob_convert(ctx, state, "no-such-folder/x.safetensors", NULL, NULL) == CLOOB_ERR_IO);
    remove(state);
}

/* 512 bytes, one merge, start and end: 515 tokens. */
static void a_vocabulary_goes_with_the_weights(void)
{
    model_config c;
    weights w;
    cloob_convert_options o;
    const char *merges = "test_convert.tmp.txt";
    FILE *f = fopen(merges, "w");
    fputs("#version: 0.2\na b\n", f);
    fclose(f);
    cloob_convert_options_init(&o);
    o.vocab = merges;
    CHECK_OK(ctx, model_config_by_name(ctx, "tiny", &c));
    c.vocab = 515;
    CHECK_OK(ctx, procedural_weights(ctx, &c, &w));
    CHECK_OK(ctx, weights_write_native(ctx, out, &w));
    weights_release(&w);
    CHECK_OK(ctx, cloob_convert(ctx, out, "test_convert2.tmp.safetensors", &o, NULL));
    CHECK_OK(ctx, weights_read_native(ctx, "test_convert2.tmp.safetensors", &w));
    CHECK(weights_get_meta(&w, "tokenizer") && strstr(weights_get_meta(&w, "tokenizer"), "a b"));
    weights_release(&w);
    make_state("tiny-rn"); /* 96 tokens */
    CHECK(cloob_convert(ctx, state, out, &o, NULL) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "515"));
    remove(state), remove(out), remove(merges), remove("test_convert2.tmp.safetensors");
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(a_report_lists_what_happened);
    RUN(texts_can_become_longer_and_weights_smaller);
    RUN(positions_are_stretched_as_long_clip_does);
    RUN(foreign_extensions_are_refused);
    RUN(a_file_can_be_described_without_writing);
    RUN(failures_list_keys_and_write_nothing);
    RUN(a_vocabulary_goes_with_the_weights);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
