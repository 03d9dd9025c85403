/* cloob info MODEL: a known model, or a configuration file, without weights. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/info.h"
#include "cli/json_out.h"
#include "train/memory_budget.h"
#include "model/config.h"

static bool is_json(const char *what)
{
    size_t n = strlen(what);
    return n > 5 && strcmp(what + n - 5, ".json") == 0 && access(what, R_OK) == 0;
}

/* A file or folder of that name comes first. */
static bool matches(const char *what) { return is_json(what) || (access(what, F_OK) != 0 && model_config_known(what)); }

static double gib(int64_t bytes) { return (double)bytes / 1073741824.0; }

static void print_tower(int64_t layers, int64_t width, int64_t heads, const char *activation, int64_t parameters)
{
    printf("        %lld layers of width %lld, %lld heads, %s, %.1f million parameters\n", (long long)layers,
           (long long)width, (long long)heads, activation, (double)parameters / 1e6);
}

static void print_text(const model_outline *m)
{
    printf("%s: %s, embeddings of %lld, %.1f million parameters in %lld tensors\n", m->name, m->family,
           (long long)m->embed, (double)m->parameters / 1e6, (long long)m->tensors);
    printf("images  %lld px", (long long)m->image_size);
    if (m->patch) printf(" in patches of %lld: %lld tokens", (long long)m->patch, (long long)m->image_tokens);
    putchar('\n');
    print_tower(m->image_layers, m->image_width, m->image_heads, m->image_activation, m->image_parameters);
    printf("texts   %lld tokens, vocabulary of %lld\n", (long long)m->context, (long long)m->vocab);
    print_tower(m->text_layers, m->text_width, m->text_heads, m->text_activation, m->text_parameters);
    printf("memory  %.2f GiB for a training step of %lld pairs: parameters and gradients %.2f,\n"
           "        optimizer %.2f, image tower %.2f, text tower %.2f, objective %.2f\n"
           "        %.2f GiB for embedding %lld pairs\n",
           gib(m->step_bytes), (long long)m->batch, gib(m->step_params), gib(m->step_optimizer), gib(m->step_image),
           gib(m->step_text), gib(m->step_objective), gib(m->embed_bytes), (long long)m->batch);
    printf("config  %s\n", m->config);
}

static void print_json(const model_outline *m)
{
    const struct {
        const char *key;
        int64_t value;
    } number[] = {
        { "embed_dim", m->embed },
        { "image_size", m->image_size },
        { "patch_size", m->patch },
        { "image_tokens", m->image_tokens },
        { "image_width", m->image_width },
        { "image_layers", m->image_layers },
        { "image_heads", m->image_heads },
        { "context_length", m->context },
        { "vocab_size", m->vocab },
        { "text_width", m->text_width },
        { "text_layers", m->text_layers },
        { "text_heads", m->text_heads },
        { "tensors", m->tensors },
        { "parameters", m->parameters },
        { "image_parameters", m->image_parameters },
        { "text_parameters", m->text_parameters },
        { "batch_size", m->batch },
        { "step_bytes", m->step_bytes },
        { "params_bytes", m->step_params },
        { "optimizer_bytes", m->step_optimizer },
        { "image_bytes", m->step_image },
        { "text_bytes", m->step_text },
        { "objective_bytes", m->step_objective },
        { "embed_bytes", m->embed_bytes },
    };
    json_out_open(NULL, '{');
    json_out_members(J_TEXT("kind", "model"), J_TEXT("model", m->name), J_OF(m, family), J_OF(m, image_activation),
                     J_OF(m, text_activation));
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) json_out_int(number[i].key, number[i].value);
    json_out_raw("config", m->config);
    json_out_close();
}

static int describe(const command *self, cloob_ctx *ctx, const char *what, const info_options *o)
{
    model_outline m;
    cloob_status status = model_describe(ctx, what, o->batch, common.precision, &m);
    if (status == CLOOB_OK && common.json) print_json(&m);
    else if (status == CLOOB_OK) print_text(&m);
    int code = status == CLOOB_OK ? 0 : cli_fail(self, ctx, status);
    model_outline_release(&m);
    return code;
}

const info_kind info_model = { matches, describe };
