/* The layout of the public structs as the C compiler sees it: "struct size" and "struct.field offset size"
 * per line. The Python package declares the same structs a second time, and its test compares. */
#include <stdio.h>

#include "cloob/cloob.h"

#define STRUCT(s)   printf("%s %zu\n", #s, sizeof(s))
#define FIELD(s, f) printf("%s.%s %zu %zu\n", #s, #f, offsetof(s, f), sizeof(((s *)0)->f))
/* The members at the start of the training options, up to the last callback. */
#define CALLBACK(f)                                                                                                    \
    printf("TrainCallbacks.%s %zu %zu\n", #f, offsetof(cloob_train_options, f), sizeof(((cloob_train_options *)0)->f))

static void models(void)
{
    STRUCT(cloob_ctx_options);
    FIELD(cloob_ctx_options, size), FIELD(cloob_ctx_options, threads), FIELD(cloob_ctx_options, log);
    FIELD(cloob_ctx_options, log_user), FIELD(cloob_ctx_options, log_level), FIELD(cloob_ctx_options, progress);
    FIELD(cloob_ctx_options, progress_user), FIELD(cloob_ctx_options, should_stop);
    FIELD(cloob_ctx_options, stop_user), FIELD(cloob_ctx_options, copy_files);
    STRUCT(cloob_model_options);
    FIELD(cloob_model_options, size), FIELD(cloob_model_options, device), FIELD(cloob_model_options, precision);
    FIELD(cloob_model_options, vocab), FIELD(cloob_model_options, config), FIELD(cloob_model_options, invariant);
    FIELD(cloob_model_options, batch), FIELD(cloob_model_options, max_pixels), FIELD(cloob_model_options, photos);
    STRUCT(cloob_model_facts);
    FIELD(cloob_model_facts, name), FIELD(cloob_model_facts, family), FIELD(cloob_model_facts, activation);
    FIELD(cloob_model_facts, embed), FIELD(cloob_model_facts, image_size), FIELD(cloob_model_facts, context);
    FIELD(cloob_model_facts, vocab), FIELD(cloob_model_facts, image_features);
    FIELD(cloob_model_facts, text_features), FIELD(cloob_model_facts, parameters), FIELD(cloob_model_facts, stored);
    FIELD(cloob_model_facts, method), FIELD(cloob_model_facts, run), FIELD(cloob_model_facts, epoch);
    FIELD(cloob_model_facts, inv_tau), FIELD(cloob_model_facts, scale_hopfield);
    FIELD(cloob_model_facts, has_tokenizer), FIELD(cloob_model_facts, container), FIELD(cloob_model_facts, names);
    FIELD(cloob_model_facts, device), FIELD(cloob_model_facts, precision);
    STRUCT(cloob_image_input);
    FIELD(cloob_image_input, path), FIELD(cloob_image_input, data), FIELD(cloob_image_input, bytes);
    FIELD(cloob_image_input, width), FIELD(cloob_image_input, height);
}

static void searches(void)
{
    STRUCT(cloob_search_update);
    FIELD(cloob_search_update, images), FIELD(cloob_search_update, kept), FIELD(cloob_search_update, embedded);
    FIELD(cloob_search_update, bad), FIELD(cloob_search_update, removed), FIELD(cloob_search_update, bad_before);
    STRUCT(cloob_search_entries);
    FIELD(cloob_search_entries, name), FIELD(cloob_search_entries, row), FIELD(cloob_search_entries, n);
    FIELD(cloob_search_entries, D), FIELD(cloob_search_entries, model), FIELD(cloob_search_entries, root);
    FIELD(cloob_search_entries, checkpoint), FIELD(cloob_search_entries, vocab);
    STRUCT(cloob_search_hit);
    FIELD(cloob_search_hit, path), FIELD(cloob_search_hit, score);
}

static void networks(void)
{
    STRUCT(cloob_hopfield);
    FIELD(cloob_hopfield, stored), FIELD(cloob_hopfield, count), FIELD(cloob_hopfield, dim);
    FIELD(cloob_hopfield, beta);
    STRUCT(cloob_hopfield_options);
    FIELD(cloob_hopfield_options, size), FIELD(cloob_hopfield_options, updates);
    FIELD(cloob_hopfield_options, tolerance), FIELD(cloob_hopfield_options, unit);
}

static void objectives(void)
{
    STRUCT(cloob_objective_options);
    FIELD(cloob_objective_options, size), FIELD(cloob_objective_options, method);
    FIELD(cloob_objective_options, inv_tau), FIELD(cloob_objective_options, scale_hopfield);
    FIELD(cloob_objective_options, device), FIELD(cloob_objective_options, compute);
    FIELD(cloob_objective_options, logit_bias);
    STRUCT(cloob_objective_shape);
    FIELD(cloob_objective_shape, n), FIELD(cloob_objective_shape, d), FIELD(cloob_objective_shape, nu);
    FIELD(cloob_objective_shape, nv), FIELD(cloob_objective_shape, dtype), FIELD(cloob_objective_shape, gradients);
    STRUCT(cloob_objective_rows);
    FIELD(cloob_objective_rows, x), FIELD(cloob_objective_rows, y), FIELD(cloob_objective_rows, u);
    FIELD(cloob_objective_rows, v), FIELD(cloob_objective_rows, dx), FIELD(cloob_objective_rows, dy);
    FIELD(cloob_objective_rows, du), FIELD(cloob_objective_rows, dv);
    STRUCT(cloob_objective_result);
    FIELD(cloob_objective_result, loss), FIELD(cloob_objective_result, image_term);
    FIELD(cloob_objective_result, text_term), FIELD(cloob_objective_result, dsum_dinv_tau);
    FIELD(cloob_objective_result, dsum_dscale), FIELD(cloob_objective_result, n), FIELD(cloob_objective_result, d);
    FIELD(cloob_objective_result, nu), FIELD(cloob_objective_result, nv), FIELD(cloob_objective_result, dsum_dbias);
}

static void training(void)
{
    STRUCT(cloob_loss_call);
    FIELD(cloob_loss_call, size), FIELD(cloob_loss_call, step), FIELD(cloob_loss_call, n), FIELD(cloob_loss_call, d);
    FIELD(cloob_loss_call, x), FIELD(cloob_loss_call, y), FIELD(cloob_loss_call, inv_tau);
    FIELD(cloob_loss_call, dx), FIELD(cloob_loss_call, dy), FIELD(cloob_loss_call, loss);
    FIELD(cloob_loss_call, dinv_tau);
    STRUCT(cloob_train_step);
    FIELD(cloob_train_step, size), FIELD(cloob_train_step, step), FIELD(cloob_train_step, steps);
    FIELD(cloob_train_step, epoch), FIELD(cloob_train_step, loss), FIELD(cloob_train_step, image_term);
    FIELD(cloob_train_step, text_term), FIELD(cloob_train_step, grad_norm), FIELD(cloob_train_step, lr);
    FIELD(cloob_train_step, inv_tau), FIELD(cloob_train_step, skipped);
    STRUCT(cloob_train_epoch);
    FIELD(cloob_train_epoch, size), FIELD(cloob_train_epoch, epoch), FIELD(cloob_train_epoch, epochs);
    FIELD(cloob_train_epoch, step), FIELD(cloob_train_epoch, loss), FIELD(cloob_train_epoch, checkpoint);
    FIELD(cloob_train_epoch, metrics);
    STRUCT(cloob_train_summary);
    FIELD(cloob_train_summary, run_dir), FIELD(cloob_train_summary, checkpoint), FIELD(cloob_train_summary, steps);
    FIELD(cloob_train_summary, epochs), FIELD(cloob_train_summary, skipped_steps);
    FIELD(cloob_train_summary, bad_samples), FIELD(cloob_train_summary, loss), FIELD(cloob_train_summary, seconds);
    FIELD(cloob_train_summary, pairs_per_s), FIELD(cloob_train_summary, wait_share);
    FIELD(cloob_train_summary, other_share), FIELD(cloob_train_summary, method), FIELD(cloob_train_summary, rank);
    FIELD(cloob_train_summary, ranks);
    printf("TrainCallbacks %zu\n", offsetof(cloob_train_options, data));
    CALLBACK(size), CALLBACK(should_stop), CALLBACK(stop_user), CALLBACK(loss), CALLBACK(loss_user);
    CALLBACK(on_step), CALLBACK(step_user), CALLBACK(on_epoch), CALLBACK(epoch_user);
    CALLBACK(on_log), CALLBACK(log_user);
}

static void embeddings(void)
{
    STRUCT(cloob_matrix);
    FIELD(cloob_matrix, data), FIELD(cloob_matrix, dtype), FIELD(cloob_matrix, rows), FIELD(cloob_matrix, columns);
    FIELD(cloob_matrix, name);
    STRUCT(cloob_retrieval_side);
    FIELD(cloob_retrieval_side, recall1), FIELD(cloob_retrieval_side, recall5);
    FIELD(cloob_retrieval_side, recall10), FIELD(cloob_retrieval_side, mean_rank);
    FIELD(cloob_retrieval_side, median_rank), FIELD(cloob_retrieval_side, mrr), FIELD(cloob_retrieval_side, tied);
    STRUCT(cloob_retrieval);
    FIELD(cloob_retrieval, pairs), FIELD(cloob_retrieval, images), FIELD(cloob_retrieval, texts);
    FIELD(cloob_retrieval, queries), FIELD(cloob_retrieval, scaled), FIELD(cloob_retrieval, image_to_text);
    FIELD(cloob_retrieval, text_to_image);
    STRUCT(cloob_retrieve_options);
    FIELD(cloob_retrieve_options, queries), FIELD(cloob_retrieve_options, text_image);
    STRUCT(cloob_split);
    FIELD(cloob_split, x), FIELD(cloob_split, y), FIELD(cloob_split, class_name), FIELD(cloob_split, classes);
}

static void probes(void)
{
    STRUCT(cloob_probe_options);
    FIELD(cloob_probe_options, size), FIELD(cloob_probe_options, search), FIELD(cloob_probe_options, lambda);
    FIELD(cloob_probe_options, max_iterations), FIELD(cloob_probe_options, tolerance);
    FIELD(cloob_probe_options, refit_all), FIELD(cloob_probe_options, random_half);
    FIELD(cloob_probe_options, seed), FIELD(cloob_probe_options, ties_mean);
    STRUCT(cloob_probe_trial);
    FIELD(cloob_probe_trial, lambda), FIELD(cloob_probe_trial, objective), FIELD(cloob_probe_trial, val_acc);
    FIELD(cloob_probe_trial, iterations), FIELD(cloob_probe_trial, converged);
    STRUCT(cloob_probe_result);
    FIELD(cloob_probe_result, lambda), FIELD(cloob_probe_result, objective), FIELD(cloob_probe_result, coef_norm);
    FIELD(cloob_probe_result, iterations), FIELD(cloob_probe_result, evaluations);
    FIELD(cloob_probe_result, converged), FIELD(cloob_probe_result, has_val), FIELD(cloob_probe_result, train_acc);
    FIELD(cloob_probe_result, val_acc), FIELD(cloob_probe_result, test_acc), FIELD(cloob_probe_result, test_acc5);
    FIELD(cloob_probe_result, test_mean_per_class), FIELD(cloob_probe_result, searched_test_acc);
    FIELD(cloob_probe_result, trained_rows), FIELD(cloob_probe_result, test_rows);
    FIELD(cloob_probe_result, dimensions), FIELD(cloob_probe_result, classes), FIELD(cloob_probe_result, class_gaps);
    FIELD(cloob_probe_result, unknown_labels), FIELD(cloob_probe_result, trials), FIELD(cloob_probe_result, trial);
    FIELD(cloob_probe_result, weight), FIELD(cloob_probe_result, label);
}

static void zeroshots(void)
{
    STRUCT(cloob_eval_options);
    FIELD(cloob_eval_options, workers), FIELD(cloob_eval_options, retrieve);
    FIELD(cloob_eval_options, retrieve_from), FIELD(cloob_eval_options, scale_hopfield);
    STRUCT(cloob_zeroshot_options);
    FIELD(cloob_zeroshot_options, size), FIELD(cloob_zeroshot_options, prompts), FIELD(cloob_zeroshot_options, set);
    FIELD(cloob_zeroshot_options, eval), FIELD(cloob_zeroshot_options, eval_room);
    FIELD(cloob_zeroshot_options, class_map);
    FIELD(cloob_zeroshot_options, predictions), FIELD(cloob_zeroshot_options, confusion);
    STRUCT(cloob_zeroshot_class);
    FIELD(cloob_zeroshot_class, name), FIELD(cloob_zeroshot_class, n), FIELD(cloob_zeroshot_class, hit1);
    FIELD(cloob_zeroshot_class, hit5);
    STRUCT(cloob_zeroshot_prediction);
    FIELD(cloob_zeroshot_prediction, image), FIELD(cloob_zeroshot_prediction, label);
    FIELD(cloob_zeroshot_prediction, predicted), FIELD(cloob_zeroshot_prediction, p);
    FIELD(cloob_zeroshot_prediction, rank);
    STRUCT(cloob_zeroshot_result);
    FIELD(cloob_zeroshot_result, top1), FIELD(cloob_zeroshot_result, top5);
    FIELD(cloob_zeroshot_result, mean_per_class), FIELD(cloob_zeroshot_result, n), FIELD(cloob_zeroshot_result, bad);
    FIELD(cloob_zeroshot_result, wants_mean_per_class), FIELD(cloob_zeroshot_result, row);
    FIELD(cloob_zeroshot_result, classes), FIELD(cloob_zeroshot_result, empty);
    FIELD(cloob_zeroshot_result, prediction), FIELD(cloob_zeroshot_result, confusion);
}

int main(void)
{
    models(), searches(), networks(), objectives(), training(), embeddings(), probes(), zeroshots();
    return 0;
}
