/* Several ranks against one: every rank computes the whole problem alone, then its rows of the shared one.
 * Run alone and under mpirun (CMakeLists.txt); parts are uneven, and with three ranks or more one has no
 * rows. */
#include "objective.h"

static cloob_ctx *ctx;
static comm *all;

static int64_t part_begin(int64_t n, int rank)
{
    int size = comm_size(all);
    int64_t even = n * rank / size;
    return rank == 1 && size > 2 ? n * 2 / size : even; /* rank 1 gets what lies between 2/size and 2/size */
}

static problem slice(const problem *p)
{
    problem s = *p;
    int64_t begin = part_begin(p->n, comm_rank(all));
    int64_t end = comm_rank(all) + 1 == comm_size(all) ? p->n : part_begin(p->n, comm_rank(all) + 1);
    s.n = end - begin;
    s.x = p->x + begin * p->d;
    s.y = p->y + begin * p->d;
    return s;
}

static double norm(const float *g, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)g[i] * (double)g[i];
    return fmax(sqrt(sum), 0.01);
}

/* This rank's part of the shared problem with `o`, compared with the whole with `alone`. Gradients norm-wise over the
 * whole. */
static void check_beside(const char *what, const problem *whole, loss_options alone, loss_options o, double loss,
                         double gradient)
{
    problem mine = slice(whole);
    answer one = evaluate_on(ctx, whole, alone, CLOOB_F32, NULL), many = evaluate_on(ctx, &mine, o, CLOOB_F32, all);
    int64_t at = part_begin(whole->n, comm_rank(all)) * whole->d, size = whole->n * whole->d;
    CHECK_OK(ctx, one.status);
    CHECK_OK(ctx, many.status);
    CHECK_BELOW(value_error(many.r.loss, one.r.loss), loss, what);
    CHECK_BELOW(fabs(many.r.dsum_dinv_tau - one.r.dsum_dinv_tau), gradient, what);
    CHECK_BELOW(fabs(many.r.dsum_dbeta - one.r.dsum_dbeta), gradient, what);
    CHECK_BELOW(fabs(many.r.dsum_dbias - one.r.dsum_dbias), gradient, what);
    CHECK_BELOW(relative_error(many.dx, one.dx + at, mine.n * mine.d, norm(one.dx, size)), gradient, what);
    CHECK_BELOW(relative_error(many.dy, one.dy + at, mine.n * mine.d, norm(one.dy, size)), gradient, what);
    CHECK_BELOW(relative_error(many.du, one.du, whole->mu * whole->d, 0.01), gradient, what);
    CHECK_BELOW(relative_error(many.dv, one.dv, whole->mv * whole->d, 0.01), gradient, what);
    answer_free(&one), answer_free(&many);
}

static void check_slice(const char *what, const problem *whole, loss_options o, double loss, double gradient)
{
    check_beside(what, whole, o, o, loss, gradient);
}

/* 2e-6 and 2e-5: each side is within half of that of the definition. */
static void ranks_give_the_numbers_of_one_process(void)
{
    static const int64_t sizes[][4] = { { 121, 24, 0, 0 }, { 64, 33, 50, 21 }, { 61, 16, 0, 70 }, { 530, 9, 0, 0 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        problem p = random_problem(i, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]);
        for (int m = 0; m <= CLOOB_METHOD_SIGLIP; m++) {
            loss_options o;
            loss_options_init(&o);
            o.method = (cloob_method)m;
            check_slice(loss_method_name(o.method), &p, o, 2e-6, 2e-5);
            o.beta = 60; /* beyond what one process does with shared scores */
            check_slice("sharp", &p, o, 2e-6, 2e-5);
        }
        problem_free(&p);
    }
}

/* The definition in double is PyTorch's (test_siglip_loss.c): loss and gradients of any number of ranks are within 1e-5
 * of it, at odd sizes. */
static void siglip_over_ranks_is_its_definition(void)
{
    static const int64_t sizes[][2] = { { 5, 7 }, { 77, 64 }, { 333, 129 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        problem p = random_problem(20 + i, sizes[i][0], sizes[i][1], 0, 0);
        loss_options o, definition;
        loss_options_init(&o);
        o.method = CLOOB_METHOD_SIGLIP, o.inv_tau = 10, o.bias = -10;
        definition = o;
        definition.backend = LOSS_REF;
        check_beside("siglip", &p, definition, o, 2e-6, 1e-5);
        problem_free(&p);
    }
}

static void the_definition_gathers_too(void)
{
    problem p = random_problem(9, 23, 8, 0, 12);
    loss_options o;
    loss_options_init(&o);
    o.backend = LOSS_REF;
    check_slice("ref", &p, o, 1e-12, 1e-6);
    problem_free(&p);
}

/* A bad row on the last rank fails every rank, and the others hear whose it is. */
static void a_bad_row_fails_all_ranks(void)
{
    problem p = random_problem(10, 60, 20, 0, 0);
    loss_options o;
    loss_options_init(&o);
    p.x[59 * 20] = NAN;
    problem mine = slice(&p);
    answer a = evaluate_on(ctx, &mine, o, CLOOB_F32, all);
    bool last = comm_rank(all) == comm_size(all) - 1;
    CHECK(a.status == (last ? CLOOB_ERR_NUMERIC : CLOOB_ERR_PEER));
    CHECK(strstr(cloob_error(ctx), last ? "row 59" : "failed") != NULL);
    answer_free(&a), problem_free(&p);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    if (comm_create(ctx, &all) != CLOOB_OK) {
        printf("%s\n", cloob_error(ctx));
        return 1;
    }
    RUN(ranks_give_the_numbers_of_one_process);
    RUN(siglip_over_ranks_is_its_definition);
    RUN(the_definition_gathers_too);
    RUN(a_bad_row_fails_all_ranks);
    comm_destroy(all);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
