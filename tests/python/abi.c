/* The layout of the public structs as the C compiler sees it: "struct size" and "struct.field offset size"
 * per line. The Python package declares the same structs a second time, and its test compares. */
#include <stdio.h>

#include "cloob/cloob.h"

#define STRUCT(type, fields)                                                                                           \
    {                                                                                                                  \
        typedef type layout;                                                                                           \
        const char *name = #type;                                                                                      \
        printf("%s %zu\n", name, sizeof(layout));                                                                      \
        fields                                                                                                         \
    }
#define F(f) printf("%s.%s %zu %zu\n", name, #f, offsetof(layout, f), sizeof(((layout *)0)->f));

int main(void)
{
    /* clang-format off */
    STRUCT(cloob_ctx_options, F(size) F(threads) F(log) F(log_user) F(log_level) F(progress) F(progress_user)
        F(should_stop) F(stop_user) F(copy_files))
    STRUCT(cloob_model_options, F(size) F(device) F(precision) F(vocab) F(config) F(invariant) F(batch) F(max_pixels)
        F(photos))
    STRUCT(cloob_model_facts, F(name) F(family) F(activation) F(embed) F(image_size) F(context) F(vocab)
        F(image_features) F(text_features) F(parameters) F(stored) F(method) F(run) F(epoch) F(inv_tau)
        F(scale_hopfield) F(has_tokenizer) F(container) F(names) F(device) F(precision))
    STRUCT(cloob_image_input, F(path) F(data) F(bytes) F(width) F(height))
    STRUCT(cloob_search_update, F(images) F(kept) F(embedded) F(bad) F(removed) F(bad_before))
    STRUCT(cloob_search_entries, F(name) F(row) F(n) F(D) F(model) F(root) F(checkpoint) F(vocab))
    STRUCT(cloob_search_hit, F(path) F(score))
    STRUCT(cloob_hopfield, F(stored) F(count) F(dim) F(beta))
    STRUCT(cloob_hopfield_options, F(size) F(updates) F(tolerance) F(unit))
    STRUCT(cloob_objective_options, F(size) F(method) F(inv_tau) F(scale_hopfield) F(device) F(compute) F(logit_bias))
    STRUCT(cloob_objective_shape, F(n) F(d) F(nu) F(nv) F(dtype) F(gradients))
    STRUCT(cloob_objective_rows, F(x) F(y) F(u) F(v) F(dx) F(dy) F(du) F(dv))
    STRUCT(cloob_objective_result, F(loss) F(image_term) F(text_term) F(dsum_dinv_tau) F(dsum_dscale) F(n) F(d) F(nu)
        F(nv) F(dsum_dbias))
    STRUCT(cloob_loss_call, F(size) F(step) F(n) F(d) F(x) F(y) F(inv_tau) F(dx) F(dy) F(loss) F(dinv_tau))
    STRUCT(cloob_train_step, F(size) F(step) F(steps) F(epoch) F(loss) F(image_term) F(text_term) F(grad_norm) F(lr)
        F(inv_tau) F(skipped))
    STRUCT(cloob_train_epoch, F(size) F(epoch) F(epochs) F(step) F(loss) F(checkpoint) F(metrics))
    STRUCT(cloob_train_summary, F(run_dir) F(checkpoint) F(steps) F(epochs) F(skipped_steps) F(bad_samples) F(loss)
        F(seconds) F(pairs_per_s) F(wait_share) F(other_share) F(method) F(rank) F(ranks))
    STRUCT(cloob_matrix, F(data) F(dtype) F(rows) F(columns) F(name))
    STRUCT(cloob_retrieval_side, F(recall1) F(recall5) F(recall10) F(mean_rank) F(median_rank) F(mrr) F(tied))
    STRUCT(cloob_retrieval, F(pairs) F(images) F(texts) F(queries) F(scaled) F(image_to_text) F(text_to_image))
    STRUCT(cloob_retrieve_options, F(queries) F(text_image))
    STRUCT(cloob_split, F(x) F(y) F(class_name) F(classes))
    STRUCT(cloob_probe_options, F(size) F(search) F(lambda) F(max_iterations) F(tolerance) F(refit_all) F(random_half)
        F(seed) F(ties_mean))
    STRUCT(cloob_probe_trial, F(lambda) F(objective) F(val_acc) F(iterations) F(converged))
    STRUCT(cloob_probe_result, F(lambda) F(objective) F(coef_norm) F(iterations) F(evaluations) F(converged)
        F(has_val) F(train_acc) F(val_acc) F(test_acc) F(test_acc5) F(test_mean_per_class) F(searched_test_acc)
        F(trained_rows) F(test_rows) F(dimensions) F(classes) F(class_gaps) F(unknown_labels) F(trials) F(trial)
        F(weight) F(label))
    STRUCT(cloob_eval_options, F(workers) F(retrieve) F(retrieve_from) F(scale_hopfield))
    STRUCT(cloob_zeroshot_options, F(size) F(prompts) F(set) F(eval) F(eval_room) F(class_map) F(predictions)
        F(confusion))
    STRUCT(cloob_zeroshot_class, F(name) F(n) F(hit1) F(hit5))
    STRUCT(cloob_zeroshot_prediction, F(image) F(label) F(predicted) F(p) F(rank))
    STRUCT(cloob_zeroshot_result, F(top1) F(top5) F(mean_per_class) F(n) F(bad) F(wants_mean_per_class) F(row)
        F(classes) F(empty) F(prediction) F(confusion))
    /* clang-format on */

    /* The members at the start of the training options, up to the last callback. */
    typedef cloob_train_options layout;
    const char *name = "TrainCallbacks";
    printf("%s %zu\n", name, offsetof(layout, data));
    F(size)
    F(should_stop)
    F(stop_user) F(loss) F(loss_user) F(on_step) F(step_user) F(on_epoch) F(epoch_user) F(on_log) F(log_user) return 0;
}
