/* The layout of the public structs as the C compiler sees it: "struct size" and "struct.field offset size"
 * per line. The Python package declares the same structs a second time, and its test compares. */
#include <stdio.h>

#include "cloob/cloob.h"

#define STRUCT(s)   printf("%s %zu\n", #s, sizeof(s))
#define FIELD(s, f) printf("%s.%s %zu %zu\n", #s, #f, offsetof(s, f), sizeof(((s *)0)->f))

static void options(void)
{
    STRUCT(cloob_ctx_options);
    FIELD(cloob_ctx_options, size);
    FIELD(cloob_ctx_options, threads), FIELD(cloob_ctx_options, log), FIELD(cloob_ctx_options, log_user);
    FIELD(cloob_ctx_options, log_level), FIELD(cloob_ctx_options, progress), FIELD(cloob_ctx_options, progress_user);
    FIELD(cloob_ctx_options, should_stop), FIELD(cloob_ctx_options, stop_user);
    FIELD(cloob_ctx_options, copy_files);
    STRUCT(cloob_model_options);
    FIELD(cloob_model_options, size);
    FIELD(cloob_model_options, device), FIELD(cloob_model_options, precision), FIELD(cloob_model_options, vocab);
    FIELD(cloob_model_options, config), FIELD(cloob_model_options, invariant), FIELD(cloob_model_options, batch);
    FIELD(cloob_model_options, max_pixels);
    FIELD(cloob_model_options, photos);
}

static void facts(void)
{
    STRUCT(cloob_model_facts);
    FIELD(cloob_model_facts, name), FIELD(cloob_model_facts, family), FIELD(cloob_model_facts, activation);
    FIELD(cloob_model_facts, embed), FIELD(cloob_model_facts, image_size), FIELD(cloob_model_facts, context);
    FIELD(cloob_model_facts, vocab), FIELD(cloob_model_facts, image_features);
    FIELD(cloob_model_facts, text_features), FIELD(cloob_model_facts, parameters);
    FIELD(cloob_model_facts, stored), FIELD(cloob_model_facts, method), FIELD(cloob_model_facts, run);
    FIELD(cloob_model_facts, epoch), FIELD(cloob_model_facts, inv_tau);
    FIELD(cloob_model_facts, scale_hopfield), FIELD(cloob_model_facts, has_tokenizer);
    FIELD(cloob_model_facts, container), FIELD(cloob_model_facts, names), FIELD(cloob_model_facts, device);
    FIELD(cloob_model_facts, precision);
}

static void networks(void)
{
    STRUCT(cloob_hopfield);
    FIELD(cloob_hopfield, stored), FIELD(cloob_hopfield, count), FIELD(cloob_hopfield, dim);
    FIELD(cloob_hopfield, beta);
    STRUCT(cloob_hopfield_options);
    FIELD(cloob_hopfield_options, size);
    FIELD(cloob_hopfield_options, updates), FIELD(cloob_hopfield_options, tolerance);
    FIELD(cloob_hopfield_options, unit);
}

static void objectives(void)
{
    STRUCT(cloob_objective_options);
    FIELD(cloob_objective_options, size);
    FIELD(cloob_objective_options, method), FIELD(cloob_objective_options, inv_tau);
    FIELD(cloob_objective_options, scale_hopfield), FIELD(cloob_objective_options, device);
    FIELD(cloob_objective_options, compute), FIELD(cloob_objective_options, logit_bias);
    STRUCT(cloob_objective_shape);
    FIELD(cloob_objective_shape, n), FIELD(cloob_objective_shape, d), FIELD(cloob_objective_shape, nu);
    FIELD(cloob_objective_shape, nv), FIELD(cloob_objective_shape, dtype);
    FIELD(cloob_objective_shape, gradients);
    STRUCT(cloob_objective_rows);
    FIELD(cloob_objective_rows, x), FIELD(cloob_objective_rows, y), FIELD(cloob_objective_rows, u);
    FIELD(cloob_objective_rows, v), FIELD(cloob_objective_rows, dx), FIELD(cloob_objective_rows, dy);
    FIELD(cloob_objective_rows, du), FIELD(cloob_objective_rows, dv);
    STRUCT(cloob_objective_result);
    FIELD(cloob_objective_result, loss), FIELD(cloob_objective_result, image_term);
    FIELD(cloob_objective_result, text_term), FIELD(cloob_objective_result, dsum_dinv_tau);
    FIELD(cloob_objective_result, dsum_dscale), FIELD(cloob_objective_result, n), FIELD(cloob_objective_result, d);
    FIELD(cloob_objective_result, nu), FIELD(cloob_objective_result, nv);
    FIELD(cloob_objective_result, dsum_dbias);
}

int main(void)
{
    options(), facts(), networks(), objectives();
    return 0;
}
