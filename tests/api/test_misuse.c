/* Invalid arguments to the public interface: every function returns an error or NULL. None may crash.
 * tests/api/misuse.sh checks that no public function is missing here. */
#include "check.h"

#include "cloob/cloob.h"

static cloob_ctx *ctx;

/* A status, and, where there is a context, one line that names the function. */
#define REFUSED(call) CHECK((call) == CLOOB_ERR_ARGUMENT)

static void functions_with_a_status_refuse_null(void)
{
    CHECK(!cloob_search_root(NULL)[0]);
    REFUSED(cloob_convert(NULL, NULL, NULL, NULL, NULL));
    REFUSED(cloob_convert(ctx, NULL, NULL, NULL, NULL));
    REFUSED(cloob_weights_describe(NULL, NULL, NULL, NULL));
    REFUSED(cloob_weights_describe(ctx, NULL, NULL, NULL));
    REFUSED(cloob_weights_verify(NULL, NULL, NULL));
    REFUSED(cloob_weights_verify(ctx, NULL, NULL));
    REFUSED(cloob_dataset_open(NULL, NULL, NULL, NULL));
    REFUSED(cloob_dataset_open(ctx, NULL, NULL, NULL));
    REFUSED(cloob_retrieve(NULL, NULL, NULL, NULL, NULL));
    REFUSED(cloob_retrieve(ctx, NULL, NULL, NULL, NULL));
    REFUSED(cloob_probe(NULL, NULL, NULL, NULL, NULL, NULL));
    REFUSED(cloob_probe(ctx, NULL, NULL, NULL, NULL, NULL));
    REFUSED(cloob_hopfield_retrieve(NULL, NULL, NULL, NULL, 0, NULL, NULL));
    REFUSED(cloob_hopfield_retrieve(ctx, NULL, NULL, NULL, 0, NULL, NULL));
    REFUSED(cloob_hub_path(NULL, NULL, false, NULL, 0));
    REFUSED(cloob_hub_path(ctx, NULL, false, NULL, 0));
    REFUSED(cloob_hub_path(ctx, "x", false, NULL, 0));
    REFUSED(cloob_hopfield_energy(NULL, NULL, NULL, 0, NULL));
    REFUSED(cloob_hopfield_energy(ctx, NULL, NULL, 0, NULL));
    REFUSED(cloob_model_open(NULL, NULL, NULL, NULL));
    REFUSED(cloob_model_open(ctx, NULL, NULL, NULL));
    REFUSED(cloob_encode_images(NULL, NULL, NULL, 0, 0, NULL));
    REFUSED(cloob_encode_images(ctx, NULL, NULL, 0, 0, NULL));
    REFUSED(cloob_encode_image(NULL, NULL, NULL, 0, 0, 0, NULL));
    REFUSED(cloob_encode_image(ctx, NULL, NULL, 0, 0, 0, NULL));
    REFUSED(cloob_encode_files(NULL, NULL, NULL, 0, 0, NULL, NULL));
    REFUSED(cloob_encode_files(ctx, NULL, NULL, 0, 0, NULL, NULL));
    REFUSED(cloob_encode_inputs(NULL, NULL, NULL, 0, 0, NULL, NULL));
    REFUSED(cloob_encode_inputs(ctx, NULL, NULL, 0, 0, NULL, NULL));
    REFUSED(cloob_model_preprocess(NULL, NULL, NULL, 0, NULL, NULL));
    REFUSED(cloob_model_preprocess(ctx, NULL, NULL, 0, NULL, NULL));
    REFUSED(cloob_encode_texts(NULL, NULL, NULL, 0, 0, NULL));
    REFUSED(cloob_encode_texts(ctx, NULL, NULL, 0, 0, NULL));
    REFUSED(cloob_model_tokenize(NULL, NULL, NULL, 0, NULL));
    REFUSED(cloob_model_tokenize(ctx, NULL, NULL, 0, NULL));
    REFUSED(cloob_encode_image_tensor(NULL, NULL, NULL, 0, 0, NULL));
    REFUSED(cloob_encode_image_tensor(ctx, NULL, NULL, 0, 0, NULL));
    REFUSED(cloob_encode_tokens(NULL, NULL, NULL, 0, 0, NULL));
    REFUSED(cloob_encode_tokens(ctx, NULL, NULL, 0, 0, NULL));
    REFUSED(cloob_objective(NULL, NULL, NULL, NULL, NULL));
    REFUSED(cloob_objective(ctx, NULL, NULL, NULL, NULL));
    REFUSED(cloob_objective_plan_create(NULL, NULL, NULL, NULL));
    REFUSED(cloob_objective_plan_create(ctx, NULL, NULL, NULL));
    REFUSED(cloob_objective_plan_scales(NULL, NULL, 0, 0));
    REFUSED(cloob_objective_plan_scales(ctx, NULL, 0, 0));
    REFUSED(cloob_objective_plan_run(NULL, NULL, NULL, NULL));
    REFUSED(cloob_objective_plan_run(ctx, NULL, NULL, NULL));
    REFUSED(cloob_search_index(NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    REFUSED(cloob_search_index(ctx, NULL, NULL, NULL, NULL, NULL, NULL));
    REFUSED(cloob_search_open(NULL, NULL, NULL));
    REFUSED(cloob_search_open(ctx, NULL, NULL));
    REFUSED(cloob_search_check(NULL, NULL, NULL));
    REFUSED(cloob_search_check(ctx, NULL, NULL));
    REFUSED(cloob_prompts_parse(NULL, NULL, 0, NULL));
    REFUSED(cloob_prompts_parse(ctx, NULL, 0, NULL));
    REFUSED(cloob_search_save(NULL, NULL, NULL, NULL));
    REFUSED(cloob_search_save(ctx, NULL, NULL, NULL));
    REFUSED(cloob_search_query(NULL, NULL, NULL, 0, 0, NULL, NULL));
    REFUSED(cloob_search_query(ctx, NULL, NULL, 0, 0, NULL, NULL));
    REFUSED(cloob_search_image(NULL, NULL, NULL, NULL, 0, NULL, NULL));
    REFUSED(cloob_search_image(ctx, NULL, NULL, NULL, 0, NULL, NULL));
    REFUSED(cloob_search_text(NULL, NULL, NULL, NULL, 0, NULL, NULL));
    REFUSED(cloob_search_text(ctx, NULL, NULL, NULL, 0, NULL, NULL));
    REFUSED(cloob_tokenizer_open(NULL, NULL, NULL));
    REFUSED(cloob_tokenizer_open(ctx, NULL, NULL));
    REFUSED(cloob_tokenizer_train(NULL, NULL, 0, NULL));
    REFUSED(cloob_tokenizer_train(ctx, NULL, 0, NULL));
    REFUSED(cloob_tokenizer_save(NULL, NULL, NULL));
    REFUSED(cloob_tokenizer_save(ctx, NULL, NULL));
    REFUSED(cloob_tokenizer_encode(NULL, NULL, NULL, 0, NULL, NULL));
    REFUSED(cloob_tokenizer_encode(ctx, NULL, NULL, 0, NULL, NULL));
    REFUSED(cloob_tokenizer_encode_rows(NULL, NULL, NULL, 0, 0, NULL));
    REFUSED(cloob_tokenizer_encode_rows(ctx, NULL, NULL, 0, 0, NULL));
    REFUSED(cloob_tokenizer_decode(NULL, NULL, NULL, 0, NULL));
    REFUSED(cloob_tokenizer_decode(ctx, NULL, NULL, 0, NULL));
    REFUSED(cloob_train(NULL, NULL, NULL));
    REFUSED(cloob_train(ctx, NULL, NULL));
    REFUSED(cloob_train_options_set(NULL, NULL, NULL, NULL));
    REFUSED(cloob_train_options_set(ctx, NULL, NULL, NULL));
    REFUSED(cloob_trainer_create(NULL, NULL, NULL));
    REFUSED(cloob_trainer_create(ctx, NULL, NULL));
    REFUSED(cloob_trainer_step(NULL, NULL, NULL, NULL, 0, NULL));
    REFUSED(cloob_trainer_step(ctx, NULL, NULL, NULL, 0, NULL));
    REFUSED(cloob_trainer_save(NULL, NULL, NULL));
    REFUSED(cloob_trainer_save(ctx, NULL, NULL));
    REFUSED(cloob_classifier_create(NULL, NULL, NULL, 0, NULL, 0, NULL));
    REFUSED(cloob_classifier_create(ctx, NULL, NULL, 0, NULL, 0, NULL));
    REFUSED(cloob_classify(NULL, NULL, NULL, 0, NULL));
    REFUSED(cloob_classify(ctx, NULL, NULL, 0, NULL));
    REFUSED(cloob_zeroshot(NULL, NULL, NULL, NULL, NULL));
    REFUSED(cloob_zeroshot(ctx, NULL, NULL, NULL, NULL));
}

static void the_others_give_nothing(void)
{
    cloob_convert_options_init(NULL);
    cloob_convert_report_release(NULL);
    cloob_data_options_init(NULL);
    cloob_dataset_close(NULL);
    cloob_probe_options_init(NULL);
    cloob_probe_release(NULL);
    cloob_hopfield_options_init(NULL);
    cloob_model_options_init(NULL);
    cloob_model_close(NULL);
    cloob_model_get_facts(NULL, NULL);
    CHECK(cloob_model_width(NULL, 0, 0) == 0);
    cloob_objective_options_init(NULL);
    cloob_objective_plan_destroy(NULL);
    cloob_search_close(NULL);
    CHECK(cloob_search_count(NULL) == 0);
    CHECK(cloob_search_width(NULL) == 0);
    CHECK(cloob_search_checkpoint(NULL) == NULL);
    CHECK(cloob_search_vocab(NULL) == NULL);
    cloob_search_hits_release(NULL, 0);
    cloob_tokenizer_close(NULL);
    CHECK(cloob_tokenizer_vocab_size(NULL) == 0);
    CHECK(cloob_tokenizer_start_id(NULL) == 0);
    CHECK(cloob_tokenizer_end_id(NULL) == 0);
    cloob_train_options_init(NULL);
    cloob_prompts_close(NULL);
    cloob_trainer_options_init(NULL);
    cloob_trainer_destroy(NULL);
    CHECK(cloob_trainer_image_size(NULL) == 0);
    CHECK(cloob_trainer_context(NULL) == 0);
    cloob_ctx_options_init(NULL);
    cloob_ctx_destroy(NULL);
    CHECK(cloob_error(NULL) != NULL);
    cloob_classifier_destroy(NULL);
    cloob_zeroshot_options_init(NULL);
    cloob_zeroshot_release(NULL);
}

static void the_line_names_the_function(void)
{
    cloob_model *m;
    REFUSED(cloob_model_open(ctx, NULL, NULL, &m));
    CHECK(strstr(cloob_error(ctx), "cloob_model_open") && strstr(cloob_error(ctx), "path"));
    REFUSED(cloob_convert(ctx, NULL, "out.safetensors", NULL, NULL));
    REFUSED(cloob_convert(ctx, "in.safetensors", NULL, NULL, NULL));
}

/* An older program: its struct ends before logit_bias, and other memory follows. */
static void option_structs_of_older_programs(void)
{
    union {
        cloob_objective_options o;
        unsigned char byte[sizeof(cloob_objective_options)];
    } u;
    enum { OLDER = offsetof(cloob_objective_options, logit_bias) };
    float x[4] = { 1, 0, 0, 1 };
    cloob_pairs e = { .x = x, .y = x, .n = 2, .d = 2 };
    cloob_objective_result r, older;
    cloob_objective_options_init(&u.o);
    CHECK(u.o.size == sizeof u.o && u.o.logit_bias == CLOOB_DEFAULT_LOGIT_BIAS);
    u.o.method = CLOOB_METHOD_SIGLIP, u.o.device = "cpu";
    CHECK_OK(ctx, cloob_objective(ctx, &u.o, &e, NULL, &r));
    memset(u.byte, 0x5a, sizeof u.byte);
    cloob_objective_options_init_size(&u.o, OLDER);
    for (size_t i = OLDER; i < sizeof u.byte; i++) CHECK(u.byte[i] == 0x5a);
    CHECK(u.o.size == OLDER && u.o.inv_tau == CLOOB_DEFAULT_INV_TAU);
    u.o.method = CLOOB_METHOD_SIGLIP, u.o.device = "cpu";
    CHECK_OK(ctx, cloob_objective(ctx, &u.o, &e, NULL, &older));
    CHECK(older.loss == r.loss);
}

/* Settings by name stay inside the program's struct. */
static void training_settings_of_older_programs(void)
{
    union {
        cloob_train_options o;
        unsigned char byte[sizeof(cloob_train_options)];
    } u;
    const size_t older = offsetof(cloob_train_options, epochs) + sizeof u.o.epochs;
    memset(u.byte, 0x5a, sizeof u.byte);
    cloob_train_options_init_size(&u.o, older);
    CHECK_OK(ctx, cloob_train_options_set(ctx, &u.o, "epochs", "7"));
    CHECK(u.o.epochs == 7 && u.o.size == older);
    REFUSED(cloob_train_options_set(ctx, &u.o, "seed", "1"));
    CHECK(strstr(cloob_error(ctx), "compile it again"));
    CHECK_OK(ctx, cloob_train_options_set(ctx, &u.o, "preset", "cc"));
    for (size_t i = older; i < sizeof u.byte; i++) CHECK(u.byte[i] == 0x5a);
}

/* A newer program: what this library does not know must be unset. */
static void option_structs_of_newer_programs(void)
{
    struct {
        cloob_objective_options o;
        double newer;
    } n;
    float x[4] = { 1, 0, 0, 1 };
    cloob_pairs e = { .x = x, .y = x, .n = 2, .d = 2 };
    cloob_objective_result r;
    n.newer = 7;
    cloob_objective_options_init_size(&n.o, sizeof n);
    CHECK(n.newer == 0);
    CHECK_OK(ctx, cloob_objective(ctx, &n.o, &e, NULL, &r));
    n.newer = 7;
    REFUSED(cloob_objective(ctx, &n.o, &e, NULL, &r));
    CHECK(strstr(cloob_error(ctx), "cloob_objective_options") && strstr(cloob_error(ctx), "does not support"));
    CHECK(!cloob_ctx_create(&(cloob_ctx_options){ .threads = 1 }));
    cloob_train_options t;
    cloob_train_options_init(&t);
    t.data_room[0] = 1;
    REFUSED(cloob_train(ctx, &t, NULL));
    CHECK(strstr(cloob_error(ctx), "cloob_train_options"));
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(functions_with_a_status_refuse_null);
    RUN(the_others_give_nothing);
    RUN(the_line_names_the_function);
    RUN(option_structs_of_older_programs);
    RUN(training_settings_of_older_programs);
    RUN(option_structs_of_newer_programs);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
