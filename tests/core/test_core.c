/* Arena, random numbers, loops, strings, files, contexts. */
#include "check.h"

#include <pthread.h>

#include "core/arena.h"
#include "core/file.h"
#include "core/pool.h"
#include "core/rng.h"
#include "core/sbuf.h"
#include "core/text.h"

static void arena_gives_zeroed_aligned_memory(void)
{
    arena a = { 0 };
    for (size_t n = 1; n < 300000; n = n * 3 + 1) {
        unsigned char *p = arena_push(&a, n);
        CHECK(p && (uintptr_t)p % 64 == 0);
        for (size_t i = 0; i < n; i++)
            if (p[i]) CHECK(!"zeroed");
        memset(p, 0xAB, n);
    }
    CHECK_STR(arena_string(&a, "abc"), "abc");
    arena_release(&a);
}

static void arrays_grow_in_an_arena(void)
{
    arena a = { 0 };
    int64_t room = 0, n = 0, *list = NULL;
    for (; n < 100; n++) {
        list = arena_grow(&a, list, n, &room, 3, sizeof *list);
        CHECK(list && room > n);
        list[n] = n * n;
    }
    CHECK(room == 192); /* 3, doubled six times */
    for (int64_t i = 0; i < n; i++) CHECK(list[i] == i * i);
    arena_release(&a);
}

static void every_status_has_a_word(void)
{
    CHECK_STR(cloob_status_name(CLOOB_OK), "ok");
    CHECK_STR(cloob_status_name(CLOOB_ERR_BUSY), "busy");
    for (int s = 0; s <= CLOOB_ERR_BUSY; s++) CHECK(strcmp(cloob_status_name((cloob_status)s), "unknown") != 0);
    CHECK_STR(cloob_status_name((cloob_status)(CLOOB_ERR_BUSY + 1)), "unknown");
}

static void random_numbers_depend_on_key_and_index_only(void)
{
    CHECK(rng_splitmix64(0) == 0xE220A8397B1DCDAFu); /* the published first output for state 0 */
    uint64_t key = rng_key(1, "a");
    CHECK(rng_u64(key, 7) == rng_u64(key, 7) && rng_u64(key, 7) != rng_u64(key, 8));
    CHECK(rng_key(1, "a") != rng_key(2, "a") && rng_key(1, "a") != rng_key(1, "b"));
    double sum = 0, square = 0, uniform = 0;
    enum { N = 200000 };
    for (int i = 0; i < N; i++) {
        double z = rng_normal(key, (uint64_t)i);
        sum += z, square += z * z, uniform += rng_uniform(key, (uint64_t)i);
    }
    CHECK_NEAR(sum / N, 0, 0.01); /* four standard errors */
    CHECK_NEAR(square / N, 1, 0.015);
    CHECK_NEAR(uniform / N, 0.5, 0.003);
}

static void permutation_visits_everything_once(void)
{
    for (uint64_t n = 1; n < 2000; n = n * 2 + 1) {
        char *seen = calloc(n, 1);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t p = rng_permute(99, i, n);
            CHECK(p < n && !seen[p]);
            if (p < n) seen[p] = 1;
        }
        free(seen);
    }
}

static void add_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t i = begin; i < end; i++) ((int *)arg)[i]++;
}

static void loops_cover_every_index_once(void)
{
    cloob_ctx_options o;
    cloob_ctx_options_init(&o);
    o.threads = 5;
    cloob_ctx *ctx = cloob_ctx_create(&o);
    int hit[1000] = { 0 };
    pool_for(ctx, 1000, 1, add_range, hit);
    pool_for(ctx, 7, 100, add_range, hit);
    pool_for(ctx, 0, 1, add_range, hit);
    for (int i = 0; i < 1000; i++) CHECK(hit[i] == (i < 7 ? 2 : 1));
    cloob_ctx_destroy(ctx);
}

enum { PIECES = 60, PIECE = 7, SHARED = PIECES * PIECE - 3 };

typedef struct shared {
    int hit[SHARED], done;
    bool begins, late; /* every piece begins at a multiple of PIECE; the first one waited in vain */
} shared;

/* The first piece is held up until all others are done. */
static void share_range(void *arg, int64_t begin, int64_t end, int thread)
{
    shared *s = arg;
    if (begin % PIECE || thread < 0 || thread > 1) __atomic_store_n(&s->begins, false, __ATOMIC_RELAXED);
    for (int64_t i = begin; i < end; i++) __atomic_fetch_add(&s->hit[i], 1, __ATOMIC_RELAXED);
    for (int i = 0; begin == 0 && end < SHARED && __atomic_load_n(&s->done, __ATOMIC_RELAXED) < PIECES - 1; i++) {
        if (i == 10000) s->late = true;
        if (i == 10000) break;
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    __atomic_fetch_add(&s->done, 1, __ATOMIC_RELAXED);
}

static void a_delayed_thread_does_not_delay_others(void)
{
    for (int threads = 1; threads <= 2; threads++) {
        cloob_ctx *ctx =
            cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = threads });
        shared s = { .begins = true };
        pool_share(ctx, SHARED, PIECE, share_range, &s);
        CHECK(s.begins && !s.late);
        for (int i = 0; i < SHARED; i++) CHECK(s.hit[i] == 1);
        pool_share(ctx, 0, 1, share_range, &s);
        CHECK(s.hit[0] == 1);
        cloob_ctx_destroy(ctx);
    }
}

static void utf8_refuses_what_is_not(void)
{
    uint32_t code;
    char out[4];
    for (uint32_t c = 1; c < 0x110000; c += 37) {
        if (c >= 0xD800 && c < 0xE000) continue;
        int n = utf8_encode(c, out);
        CHECK(utf8_decode(out, (size_t)n, &code) == n && code == c);
        if (n > 1) CHECK(utf8_decode(out, (size_t)n - 1, &code) == 0);
    }
    CHECK(utf8_decode("\xC0\x80", 2, &code) == 0);         /* overlong */
    CHECK(utf8_decode("\xED\xA0\x80", 3, &code) == 0);     /* surrogate */
    CHECK(utf8_decode("\xF4\x90\x80\x80", 4, &code) == 0); /* beyond U+10FFFF */
    CHECK(utf8_decode("\x80", 1, &code) == 0);
}

static void words_of_a_list_are_whole(void)
{
    static const char list[] = "one two-three four";
    CHECK(text_has_word(list, "one") && text_has_word(list, "two-three") && text_has_word(list, "four"));
    CHECK(!text_has_word(list, "two") && !text_has_word(list, "our") && !text_has_word(list, "one two-three"));
    CHECK(!text_has_word(list, "") && !text_has_word(list, " ") && !text_has_word(NULL, "one"));
}

static void files_are_replaced_whole_or_not_at_all(void)
{
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    char path[] = "/tmp/cloob-test-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    file_bytes b;
    file_writer w;
    CHECK_OK(ctx, file_write(ctx, path, "old", 3));
    CHECK_OK(ctx, file_writer_begin(ctx, path, &w));
    fputs("half", w.stream);
    file_writer_abort(&w);
    CHECK_OK(ctx, file_read(ctx, path, 100, &b));
    CHECK_STR(b.data, "old");
    file_bytes_release(&b);
    CHECK(file_read(ctx, path, 2, &b) == CLOOB_ERR_FORMAT);
    CHECK(file_read(ctx, "/nowhere/at/all", 2, &b) == CLOOB_ERR_IO);
    CHECK(strstr(cloob_error(ctx), "/nowhere/at/all") != NULL);
    remove(path);
    cloob_ctx_destroy(ctx);
}

enum { WRITERS = 4, ROUNDS = 50, LETTERS = 5000 };
static const char *const contested = "core-contested.txt";

static void *write_often(void *letter)
{
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    char text[LETTERS];
    intptr_t failed = 0;
    memset(text, *(const char *)letter, sizeof text);
    for (int i = 0; i < ROUNDS; i++) failed += file_write(ctx, contested, text, sizeof text) != CLOOB_OK;
    cloob_ctx_destroy(ctx);
    return (void *)failed;
}

static void threads_may_write_the_same_file(void)
{
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    pthread_t thread[WRITERS];
    file_bytes got = { 0 };
    for (int i = 0; i < WRITERS; i++) pthread_create(&thread[i], NULL, write_often, &"abcd"[i]);
    for (int i = 0; i < WRITERS; i++) {
        void *failed = NULL;
        pthread_join(thread[i], &failed);
        CHECK(!failed);
    }
    CHECK_OK(ctx, file_read(ctx, contested, 1 << 20, &got));
    CHECK(got.size == LETTERS && memcmp(got.data, got.data + 1, LETTERS - 1) == 0); /* one writer's, whole */
    file_bytes_release(&got);
    CHECK(remove(contested) == 0);
    cloob_ctx_destroy(ctx);
}

static void errors_are_one_line_and_can_be_wrapped(void)
{
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    CHECK(ctx_fail(ctx, CLOOB_ERR_IO, "a\nb %d", 3) == CLOOB_ERR_IO);
    CHECK_STR(cloob_error(ctx), "a b 3");
    CHECK(ctx_wrap(ctx, CLOOB_ERR_IO, "row %d", 7) == CLOOB_ERR_IO);
    CHECK_STR(cloob_error(ctx), "row 7: a b 3");
    ctx_fail(ctx, CLOOB_ERR_IO, "a\033[31mb\177\tc");
    CHECK_STR(cloob_error(ctx), "a?[31mb?\tc");
    cloob_ctx_destroy(ctx);
}

int main(void)
{
    RUN(arena_gives_zeroed_aligned_memory);
    RUN(arrays_grow_in_an_arena);
    RUN(every_status_has_a_word);
    RUN(random_numbers_depend_on_key_and_index_only);
    RUN(permutation_visits_everything_once);
    RUN(loops_cover_every_index_once);
    RUN(a_delayed_thread_does_not_delay_others);
    RUN(utf8_refuses_what_is_not);
    RUN(words_of_a_list_are_whole);
    RUN(files_are_replaced_whole_or_not_at_all);
    RUN(threads_may_write_the_same_file);
    RUN(errors_are_one_line_and_can_be_wrapped);
    return check_summary();
}
