/* cloob_convert as a program outside sees it: options, the report, and failures that leave nothing behind. */
#include "check.h"

#include <unistd.h>

#include "cloob/cloob.h"
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

static void a_report_tells_what_happened(void)
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
    o.dtype = "int8";
    CHECK_OK(ctx, cloob_convert(ctx, state, out, &o, NULL));
    CHECK_OK(ctx, weights_read_native(ctx, out, &w));
    const tensor *p = weights_find(&w, "positional_embedding");
    CHECK(w.config.context == 24 && p && p->dim[0] == 24 && p->dtype == CLOOB_I8);
    weights_release(&w);
    CHECK_OK(ctx, cloob_weights_describe(ctx, out, NULL, &r));
    CHECK(strstr(r.config, "\"context_length\":24") != NULL);
    cloob_convert_report_release(&r);
    o.context = 5;
    CHECK(cloob_convert(ctx, state, out, &o, NULL) == CLOOB_ERR_ARGUMENT);
    remove(out);
}

static void endings_of_others_are_refused(void)
{
    make_state("tiny-vit");
    CHECK(cloob_convert(ctx, state, "test_convert.tmp.onnx", NULL, NULL) == CLOOB_ERR_UNSUPPORTED);
    CHECK(strstr(cloob_error(ctx), ".onnx") && access("test_convert.tmp.onnx", F_OK) != 0);
    CHECK(cloob_convert(ctx, state, "test_convert.tmp.gguf", NULL, NULL) == CLOOB_ERR_UNSUPPORTED);
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
    RUN(a_report_tells_what_happened);
    RUN(texts_can_become_longer_and_weights_smaller);
    RUN(endings_of_others_are_refused);
    RUN(a_file_can_be_described_without_writing);
    RUN(failures_list_keys_and_write_nothing);
    RUN(a_vocabulary_goes_with_the_weights);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
