/* The batching encoder: many threads at once get the bytes that one gets alone; the queue is bounded; weights that were
 * freed come back; what waits at the end is answered; damage is found in the background. */
#include "check.h"

#include <pthread.h>
#include <unistd.h>

#include "infer/batcher.h"
#include "model/interchange.h"
#include "model/procedural.h"
#include "model/procedural_weights.h"

static cloob_ctx *ctx;
static const char *const file = "test_batcher.tmp.safetensors";
enum { THREADS = 12, EACH = 20, KINDS = 6 };

static void write_model(void)
{
    weights w;
    model_config c;
    CHECK_OK(ctx, model_config_by_name(ctx, "tiny-vit", &c));
    CHECK_OK(ctx, procedural_weights(ctx, &c, &w));
    CHECK_OK(ctx, weights_write_native(ctx, file, &w));
    weights_release(&w);
}

static batcher *open_batcher(const batcher_options *from)
{
    batcher_options o;
    batcher *b = NULL;
    batcher_options_init(&o);
    if (from) o = *from;
    o.model.device = "cpu";
    CHECK_OK(ctx, batcher_create(ctx, file, &o, &b));
    return b;
}

/* Input k of KINDS: token lists of several lengths, and images. */
typedef struct sample {
    int32_t ids[16];
    uint8_t *rgb;
    batch_input in;
} sample;

static void make_sample(batcher *b, int k, sample *s)
{
    cloob_model_facts facts;
    batcher_get_facts(b, &facts);
    *s = (sample){ 0 };
    if (k % 3) {
        for (int i = 0; i < 2 * k; i++) s->ids[i] = 1 + (7 * k + 3 * i) % 50;
        s->in = (batch_input){ .kind = BATCH_TOKENS, .ids = s->ids, .count = 2 * k };
        return;
    }
    size_t bytes = (size_t)(3 * facts.image_size * facts.image_size);
    s->rgb = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) s->rgb[i] = (uint8_t)(i * (size_t)(k + 1) * 37 >> 3);
    s->in = (batch_input){ .kind = BATCH_IMAGE_RGB, .data = s->rgb, .bytes = bytes };
}

typedef struct crowd {
    batcher *b;
    sample s[KINDS];
    batch_rows want[KINDS];
    int wrong, seed;
} crowd;

static void *one_of_many(void *arg)
{
    crowd c = *(crowd *)arg;
    cloob_ctx *own = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    for (int i = 0; i < EACH; i++) {
        int k = (c.seed * 5 + i * 7) % KINDS;
        batch_rows rows;
        bool ok = batcher_encode(own, c.b, &c.s[k].in, 1, NULL, &rows) == CLOOB_OK;
        if (!ok || memcmp(rows.data, c.want[k].data, (size_t)rows.width * sizeof *rows.data) != 0)
            ((crowd *)arg)->wrong++;
        batch_rows_release(&rows);
    }
    cloob_ctx_destroy(own);
    return NULL;
}

static void many_threads_get_the_bytes_of_one(void)
{
    crowd c = { .b = open_batcher(NULL) }, each[THREADS];
    pthread_t thread[THREADS];
    batcher_stats stats;
    for (int k = 0; k < KINDS; k++) {
        make_sample(c.b, k, &c.s[k]);
        CHECK_OK(ctx, batcher_encode(ctx, c.b, &c.s[k].in, 1, NULL, &c.want[k]));
    }
    for (int i = 0; i < THREADS; i++) {
        each[i] = c, each[i].seed = i;
        pthread_create(&thread[i], NULL, one_of_many, &each[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        CHECK(each[i].wrong == 0);
    }
    batcher_get_stats(c.b, &stats);
    CHECK(stats.texts + stats.images == THREADS * EACH + KINDS);
    CHECK(stats.queued == 0);
    for (int k = 0; k < KINDS; k++) batch_rows_release(&c.want[k]), free(c.s[k].rgb);
    batcher_destroy(c.b);
}

static void the_queue_is_bounded(void)
{
    batcher_options o;
    batcher_options_init(&o);
    o.max_queue = 4;
    batcher *b = open_batcher(&o);
    batcher_stats stats;
    batch_rows rows;
    batch_input in[5];
    sample s;
    make_sample(b, 1, &s);
    for (int i = 0; i < 5; i++) in[i] = s.in;
    CHECK(batcher_encode(ctx, b, in, 5, NULL, &rows) == CLOOB_ERR_BUSY && rows.data == NULL);
    batcher_get_stats(b, &stats);
    CHECK(stats.refused == 5 && stats.queued == 0);
    CHECK_OK(ctx, batcher_encode(ctx, b, in, 4, NULL, &rows));
    batch_rows_release(&rows);
    batcher_destroy(b);
}

static _Atomic bool busy_end;

/* Keeps the encoder busy with batches of many texts. */
static void *keep_busy(void *user)
{
    enum { N = 256 };
    cloob_ctx *own = cloob_ctx_create(NULL);
    batch_input in[N];
    batch_rows rows;
    sample s;
    make_sample(user, 1, &s);
    for (int i = 0; i < N; i++) in[i] = s.in;
    while (!busy_end)
        if (batcher_encode(own, user, in, N, NULL, &rows) == CLOOB_OK) batch_rows_release(&rows);
    cloob_ctx_destroy(own);
    return NULL;
}

static void a_wait_that_is_too_long_ends(void)
{
    batcher_options options;
    batcher_options_init(&options);
    options.max_batch = 256;
    batcher *b = open_batcher(&options);
    batch_rows rows;
    batch_options o = { .what = CLOOB_UNIT, .timeout_ms = 1 };
    cloob_status status = CLOOB_OK;
    pthread_t thread;
    sample s;
    make_sample(b, 2, &s);
    busy_end = false;
    CHECK(pthread_create(&thread, NULL, keep_busy, b) == 0);
    for (int i = 0; i < 10000 && status == CLOOB_OK; i++) {
        status = batcher_encode(ctx, b, &s.in, 1, &o, &rows);
        if (status == CLOOB_OK) batch_rows_release(&rows);
    }
    CHECK(status == CLOOB_ERR_BUSY && rows.data == NULL);
    busy_end = true;
    pthread_join(thread, NULL);
    CHECK_OK(ctx, batcher_encode(ctx, b, &s.in, 1, NULL, &rows));
    batch_rows_release(&rows);
    batcher_destroy(b);
}

static void idle_weights_are_unloaded_and_reloaded(void)
{
    batcher_options o;
    batcher_options_init(&o);
    o.idle_unload_s = 0.05;
    batcher *b = open_batcher(&o);
    batch_rows first, second;
    batcher_stats stats;
    sample s;
    make_sample(b, 4, &s);
    CHECK_OK(ctx, batcher_encode(ctx, b, &s.in, 1, NULL, &first));
    for (int i = 0; i < 6000; i++) { /* two minutes at most */
        batcher_get_stats(b, &stats);
        if (!stats.loaded) break;
        usleep(20000);
    }
    CHECK(!stats.loaded);
    CHECK_OK(ctx, batcher_encode(ctx, b, &s.in, 1, NULL, &second));
    CHECK(memcmp(first.data, second.data, (size_t)first.width * sizeof *first.data) == 0);
    batcher_get_stats(b, &stats);
    CHECK(stats.loads >= 2);
    batch_rows_release(&first), batch_rows_release(&second);
    batcher_destroy(b);
}

static void flip_a_weight(void)
{
    FILE *f = fopen(file, "r+b");
    CHECK(f && fseek(f, -5, SEEK_END) == 0);
    int byte = fgetc(f);
    fseek(f, -5, SEEK_END);
    fputc(byte ^ 0x40, f);
    fclose(f);
}

/* Weights are in memory: a file that is rewritten or shortened in place changes no row, before and after weights are
 * packed. */
static void a_rewritten_file_changes_no_row(void)
{
    enum { N = 8 };
    for (int packed = 0; packed < 2; packed++) {
        batcher *b = open_batcher(NULL);
        batch_input in[N];
        batch_rows want, rows;
        sample s[N];
        for (int k = 0; k < N; k++) make_sample(b, k, &s[k]), in[k] = s[k].in;
        for (int run = 0; run < 3 * packed; run++) {
            CHECK_OK(ctx, batcher_encode(ctx, b, in, N, NULL, &rows));
            batch_rows_release(&rows);
        }
        flip_a_weight();
        CHECK(truncate(file, 100) == 0);
        CHECK_OK(ctx, batcher_encode(ctx, b, in, N, NULL, &rows));
        write_model();
        batcher *fresh = open_batcher(NULL);
        CHECK_OK(ctx, batcher_encode(ctx, fresh, in, N, NULL, &want));
        CHECK(memcmp(rows.data, want.data, (size_t)(N * rows.width) * sizeof *rows.data) == 0);
        batch_rows_release(&rows), batch_rows_release(&want);
        batcher_destroy(b), batcher_destroy(fresh);
        for (int k = 0; k < N; k++) free(s[k].rgb);
    }
}

/* Weights that cannot be loaded again refuse inputs as a failure of the file, until a reload succeeds. */
static void damaged_weights_refuse_until_repaired(void)
{
    batcher_options o;
    batcher_options_init(&o);
    o.idle_unload_s = 0.05;
    batcher *b = open_batcher(&o);
    batch_rows rows;
    batcher_stats stats;
    sample s;
    make_sample(b, 1, &s);
    for (int i = 0; i < 6000; i++) { /* two minutes at most */
        batcher_get_stats(b, &stats);
        if (!stats.loaded) break;
        usleep(20000);
    }
    flip_a_weight();
    for (int i = 0; i < 2; i++) {
        CHECK(batcher_encode(ctx, b, &s.in, 1, NULL, &rows) == CLOOB_ERR_IO);
        CHECK(strstr(cloob_error(ctx), "damaged") != NULL);
        CHECK(batcher_reload(ctx, b) == CLOOB_ERR_FORMAT);
        batcher_get_stats(b, &stats);
        CHECK(strstr(stats.error, "damaged") != NULL && !stats.loaded);
    }
    flip_a_weight();
    CHECK_OK(ctx, batcher_reload(ctx, b));
    CHECK_OK(ctx, batcher_encode(ctx, b, &s.in, 1, NULL, &rows));
    batch_rows_release(&rows);
    batcher_get_stats(b, &stats);
    CHECK(!stats.error[0]);
    batcher_destroy(b);
    flip_a_weight();
    o.model.device = "cpu";
    CHECK(batcher_create(ctx, file, &o, &b) == CLOOB_ERR_FORMAT && !b);
    CHECK(strstr(cloob_error(ctx), "damaged") != NULL);
}

static void a_precision_that_the_device_lacks_is_refused(void)
{
    batcher *b = NULL;
    batcher_options o;
    batcher_options_init(&o);
    o.model.device = "cpu", o.model.precision = "fp8";
    CHECK(batcher_create(ctx, file, &o, &b) == CLOOB_ERR_UNSUPPORTED && !b);
    CHECK(strstr(cloob_error(ctx), "fp8") != NULL);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    write_model();
    RUN(many_threads_get_the_bytes_of_one);
    RUN(the_queue_is_bounded);
    RUN(a_wait_that_is_too_long_ends);
    RUN(idle_weights_are_unloaded_and_reloaded);
    RUN(a_rewritten_file_changes_no_row);
    RUN(a_precision_that_the_device_lacks_is_refused);
    RUN(damaged_weights_refuse_until_repaired);
    remove(file);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
