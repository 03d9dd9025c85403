/* The communicator, alone or under mpirun (tests/dist/CMakeLists.txt runs it with 1, 2, 3 and 5 ranks): every
 * exchange against the value it must have, with parts of different sizes, one of them empty. */
#include "check.h"

#include <time.h>

#include "core/limits.h"
#include "dist/comm.h"
#include "tensor/tensor.h"

static cloob_ctx *ctx;
static comm *all;

enum { LONGEST = 40 };

/* Rank 1 owns nothing when there are three or more; the others own 3 + rank. */
static int64_t part(int rank) { return rank == 1 && comm_size(all) > 2 ? 0 : 3 + rank; }

static int64_t parts(int64_t *count)
{
    int64_t total = 0;
    for (int r = 0; r < comm_size(all); r++) total += count[r] = part(r);
    return total;
}

static void gather_puts_parts_in_order(void)
{
    int64_t count[LONGEST], total = parts(count), at = 0;
    uint16_t mine[LONGEST], everything[LONGEST * LONGEST];
    for (int64_t i = 0; i < part(comm_rank(all)); i++) mine[i] = (uint16_t)(100 * comm_rank(all) + i);
    CHECK_OK(ctx, comm_all_gather(ctx, all, mine, everything, count, CLOOB_BF16));
    for (int r = 0; r < comm_size(all); r++)
        for (int64_t i = 0; i < count[r]; i++) CHECK(everything[at++] == 100 * r + i);
    CHECK(at == total);
}

static void reduce_scatter_gives_each_its_sum(void)
{
    int64_t count[LONGEST], total = parts(count), first = 0;
    float send[LONGEST * LONGEST], recv[LONGEST];
    for (int64_t i = 0; i < total; i++) send[i] = (float)(i * (comm_rank(all) + 1));
    for (int r = 0; r < comm_rank(all); r++) first += count[r];
    CHECK_OK(ctx, comm_reduce_scatter(ctx, all, send, recv, count, CLOOB_F32));
    double ranks = comm_size(all) * (comm_size(all) + 1) / 2.0;
    for (int64_t i = 0; i < part(comm_rank(all)); i++) CHECK_NEAR(recv[i], (double)(first + i) * ranks, 0);
}

static void sums_and_overlapping_sums(void)
{
    double a[3] = { 1, comm_rank(all), -0.5 };
    float b[2] = { 2, (float)comm_rank(all) }, c[1] = { 4 };
    comm_request rb, rc;
    int n = comm_size(all);
    CHECK_OK(ctx, comm_all_reduce_begin(ctx, all, b, 2, CLOOB_F32, NULL, &rb));
    CHECK_OK(ctx, comm_all_reduce_begin(ctx, all, c, 1, CLOOB_F32, NULL, &rc));
    CHECK_OK(ctx, comm_all_reduce_wait(ctx, all, &rb));
    CHECK_OK(ctx, comm_all_reduce_wait(ctx, all, &rc));
    CHECK_OK(ctx, comm_all_reduce(ctx, all, a, 3, CLOOB_F64));
    CHECK_NEAR(a[0], n, 0);
    CHECK_NEAR(a[1], n * (n - 1) / 2.0, 0);
    CHECK_NEAR(b[0], 2.0 * n, 0);
    CHECK_NEAR(b[1], n * (n - 1) / 2.0, 0);
    CHECK_NEAR(c[0], 4.0 * n, 0);
}

static void broadcast_comes_from_the_root(void)
{
    int root = comm_size(all) - 1;
    int64_t v = comm_rank(all) == root ? 77 : -1;
    CHECK_OK(ctx, comm_broadcast(ctx, all, &v, 1, CLOOB_I64, root));
    CHECK(v == 77);
    CHECK_OK(ctx, comm_barrier(ctx, all));
}

static void a_failure_reaches_all_ranks_and_names_the_rank(void)
{
    int last = comm_size(all) - 1;
    char text[64];
    CHECK_OK(ctx, comm_agree(ctx, all, CLOOB_OK));
    cloob_status s = comm_agree(ctx, all, comm_rank(all) == last ? CLOOB_ERR_IO : CLOOB_OK);
    CHECK(s == (comm_rank(all) == last ? CLOOB_ERR_IO : CLOOB_ERR_PEER));
    snprintf(text, sizeof text, "rank %d of %d", last, comm_size(all));
    if (comm_rank(all) != last) CHECK(strstr(cloob_error(ctx), text) != NULL);
}

static void launchers_are_recognised(void)
{
    comm_env env;
    if (getenv("OMPI_COMM_WORLD_SIZE")) return; /* a real launcher comes first */
    setenv("SLURM_PROCID", "3", 1);
    setenv("SLURM_NTASKS", "8", 1);
    setenv("SLURM_LOCALID", "1", 1);
    CHECK_OK(ctx, comm_env_read(ctx, &env));
    CHECK(env.size == 1); /* a batch script, not a step */
    setenv("SLURM_STEP_ID", "0", 1);
    CHECK_OK(ctx, comm_env_read(ctx, &env));
    CHECK(env.rank == 3 && env.size == 8 && env.local_rank == 1);
    CHECK_STR(env.launcher, "srun");
    setenv("RANK", "5", 1);
    setenv("WORLD_SIZE", "4", 1);
    CHECK(comm_env_read(ctx, &env) == CLOOB_ERR_ARGUMENT);
    CHECK(strstr(cloob_error(ctx), "WORLD_SIZE=4") != NULL);
    setenv("WORLD_SIZE", "6", 1);
    comm *c;
    CHECK(comm_create(ctx, &c) == CLOOB_ERR_UNSUPPORTED && c == NULL);
    CHECK(strstr(cloob_error(ctx), "torchrun") != NULL);
}

/* The others wait three times the deadline for rank 0, which answers meanwhile: nobody is lost. tests/train/ranks.sh
 * stops a rank for good. */
static void a_busy_rank_that_answers_is_waited_for(void)
{
    int64_t one = 1;
    double begun = clock_seconds();
    comm_set_timeout(all, 1.5);
    while (comm_rank(all) == 0 && comm_size(all) > 1 && clock_seconds() - begun < 4.5) {
        comm_answer(all);
        nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
    }
    CHECK_OK(ctx, comm_host_sum(ctx, all, &one, 1));
    CHECK(one == comm_size(all) && !comm_has_lost(all));
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    if (comm_create(ctx, &all) != CLOOB_OK) {
        printf("%s\n", cloob_error(ctx));
        return 1;
    }
    RUN(gather_puts_parts_in_order);
    RUN(reduce_scatter_gives_each_its_sum);
    RUN(sums_and_overlapping_sums);
    RUN(broadcast_comes_from_the_root);
    RUN(a_failure_reaches_all_ranks_and_names_the_rank);
    RUN(launchers_are_recognised);
    RUN(a_busy_rank_that_answers_is_waited_for);
    comm_destroy(all);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
