/* The paper's theory in numbers, as CSV (docs/explanation/theory.md):
 *
 *     cc theory.c $(pkg-config --cflags --libs cloob) -lm -o theory
 *     ./theory mi             InfoNCE and InfoLOOB as bounds of a known mutual information
 *     ./theory saturation     their gradients as the positive's similarity grows
 *     ./theory hopfield       energy and movement of states, update by update
 *     ./theory covariance     what retrieval does to the covariance of two features that go together
 *     ./theory variance       the loss with U_x^T V_y, which the paper rejects, against CLOOB's
 *     ./theory world DIR      the same for the captions of a world that `cloob synth --out DIR` drew
 */
#define _POSIX_C_SOURCE 200809L /* strtok_r */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cloob/cloob.h>

static int fail(const cloob_ctx *ctx)
{
    fprintf(stderr, "%s\n", cloob_error(ctx));
    return 1;
}

/* Uniform in (0, 1) and normal numbers, the same on every machine. */
static double uniform(void)
{
    static unsigned long long s = 88172645463325252ull;
    s ^= s << 13, s ^= s >> 7, s ^= s << 17;
    return ((double)(s >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(void) { return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()); }

/* ---- mutual information -------------------------------------------------------------------------- */

/* x and y have D normal entries each, entry i of one correlated with entry i of the other by r: their mutual
 * information is -D/2 ln(1 - r^2). The best critic is known, too: ln p(y|x) - ln p(y). */
static double log_ratio(const double *x, const double *y, int D, double r)
{
    double sum = 0, v = 1 - r * r;
    for (int i = 0; i < D; i++) {
        double e = y[i] - r * x[i];
        sum += 0.5 * (y[i] * y[i] - e * e / v - log(v));
    }
    return sum;
}

/* Over one batch: the means of f_ii - ln mean_j exp f_ij, over all j (InfoNCE) and over j != i (InfoLOOB). */
static void bounds(const double *x, const double *y, int N, int D, double r, double *nce, double *loob)
{
    for (int i = 0; i < N; i++) {
        double own = log_ratio(x + i * D, y + i * D, D, r), max = -INFINITY, others = 0;
        double *f = malloc((size_t)N * sizeof *f);
        for (int j = 0; j < N; j++) {
            f[j] = log_ratio(x + i * D, y + j * D, D, r);
            if (j != i && f[j] > max) max = f[j];
        }
        for (int j = 0; j < N; j++)
            if (j != i) others += exp(f[j] - max);
        double rest = max + log(others), top = fmax(rest, own);
        *loob += (own - rest + log(N - 1)) / N;
        *nce += (own - top - log(exp(rest - top) + exp(own - top)) + log(N)) / N;
        free(f);
    }
}

static int mutual_information(void)
{
    enum { N = 128, D = 4, BATCHES = 40 };
    static double x[N * D], y[N * D];
    printf("mutual_information,infonce,infoloob,ln_n\n");
    for (double I = 0.5; I <= 10; I += 0.5) {
        double r = sqrt(1 - exp(-2 * I / D)), nce = 0, loob = 0;
        for (int b = 0; b < BATCHES; b++) {
            for (int i = 0; i < N * D; i++) x[i] = normal(), y[i] = r * x[i] + sqrt(1 - r * r) * normal();
            bounds(x, y, N, D, r, &nce, &loob);
        }
        printf("%.2f,%.4f,%.4f,%.4f\n", I, nce / BATCHES, loob / BATCHES, log(N));
    }
    return 0;
}

/* ---- saturation ---------------------------------------------------------------------------------- */

/* N pairs whose positives have similarity s and whose negatives have none: x_i is axis i, y_i lies between axis i and
 * an axis of its own. Prints the gradient of x_i towards y_i, and the gradient by the inverse temperature of the loss
 * that is not multiplied by tau. */
static int saturation(cloob_ctx *ctx)
{
    enum { N = 64, D = 2 * N };
    static float x[N * D], y[N * D], dx[N * D], dy[N * D];
    static const cloob_method method[] = { CLOOB_METHOD_CLIP, CLOOB_METHOD_INFOLOOB };
    printf("similarity,infonce,infoloob,temperature_infonce,temperature_infoloob\n");
    for (int k = 0; k <= 40; k++) {
        double s = k / 40.0, pull[2], by_scale[2];
        memset(x, 0, sizeof x), memset(y, 0, sizeof y);
        for (int i = 0; i < N; i++) {
            x[i * D + i] = 1;
            y[i * D + i] = (float)s, y[i * D + N + i] = (float)sqrt(1 - s * s);
        }
        for (int m = 0; m < 2; m++) {
            cloob_objective_options o;
            cloob_objective_result r;
            cloob_objective_options_init(&o);
            o.method = method[m], o.device = "cpu";
            cloob_pairs e = { .x = x, .y = y, .n = N, .d = D };
            if (cloob_objective(ctx, &o, &e, &(cloob_gradients){ .dx = dx, .dy = dy }, &r) != CLOOB_OK)
                return fail(ctx);
            /* of -loss by x_0, along y_0; times N, as the objective is a mean */
            pull[m] = 0;
            by_scale[m] = -r.dsum_dinv_tau;
            for (int i = 0; i < D; i++) pull[m] -= (double)N * dx[i] * y[i];
        }
        printf("%.3f,%.6f,%.6f,%.6f,%.6f\n", s, pull[0], pull[1], by_scale[0], by_scale[1]);
    }
    return 0;
}

/* ---- Hopfield networks --------------------------------------------------------------------------- */

static void unit(float *x, int D)
{
    double square = 0;
    for (int i = 0; i < D; i++) square += (double)x[i] * x[i];
    for (int i = 0; i < D; i++) x[i] = (float)(x[i] / sqrt(square));
}

/* A state near one of 64 random patterns, updated ten times. */
static int hopfield(cloob_ctx *ctx)
{
    enum { M = 64, D = 16, UPDATES = 10 };
    static float u[M * D], state[D], next[D];
    static const double beta[] = { 1, 8, 30 };
    for (int i = 0; i < M * D; i++) u[i] = (float)normal();
    for (int i = 0; i < M; i++) unit(u + i * D, D);
    printf("beta,update,energy,moved,similarity_to_pattern\n");
    for (int b = 0; b < 3; b++) {
        cloob_hopfield h = { u, M, D, beta[b] };
        cloob_hopfield_options o;
        cloob_hopfield_options_init(&o);
        for (int i = 0; i < D; i++) state[i] = u[i] + 0.15f * (float)normal();
        unit(state, D);
        for (int k = 0; k <= UPDATES; k++) {
            double energy, moved = 0, like = 0, square = 0;
            if (cloob_hopfield_energy(ctx, &h, state, 1, &energy) != CLOOB_OK) return fail(ctx);
            if (cloob_hopfield_retrieve(ctx, &h, &o, state, 1, next, NULL) != CLOOB_OK) return fail(ctx);
            for (int i = 0; i < D; i++) {
                moved += pow((double)next[i] - state[i], 2);
                like += (double)state[i] * u[i], square += (double)state[i] * state[i];
            }
            printf("%g,%d,%.6f,%.6g,%.4f\n", beta[b], k, energy, sqrt(moved), like / sqrt(square));
            memcpy(state, next, sizeof state);
        }
    }
    return 0;
}

/* ---- covariance ---------------------------------------------------------------------------------- */

/* Embeddings of scenes with two features that occur together in nine of ten scenes, such as a boat and the sea. Each
 * embedding has one of the two; the other is explained away. Retrieval mixes in the features of similar scenes. */
static int covariance(cloob_ctx *ctx)
{
    enum { N = 2000, D = 32 };
    static float x[N * D], z[N * D];
    static const double beta[] = { 0, 2, 4, 8, 14.3, 30, 60 }; /* 0: no retrieval */
    for (int n = 0; n < N; n++) {
        int boat = uniform() < 0.5, sea = uniform() < 0.9 ? boat : !boat, named = uniform() < 0.5;
        for (int i = 0; i < D; i++) x[n * D + i] = 0.12f * (float)normal();
        x[n * D] += named ? (boat ? 0.7f : -0.7f) : 0.15f * (float)(2 * boat - 1);
        x[n * D + 1] += named ? 0.15f * (float)(2 * sea - 1) : (sea ? 0.7f : -0.7f);
        unit(x + n * D, D);
    }
    printf("beta,covariance,correlation\n");
    for (int b = 0; b < 7; b++) {
        cloob_hopfield h = { x, N, D, beta[b] };
        cloob_hopfield_options o;
        double m[2] = { 0, 0 }, c[3] = { 0, 0, 0 };
        cloob_hopfield_options_init(&o);
        o.unit = true;
        memcpy(z, x, sizeof x);
        if (beta[b] > 0 && cloob_hopfield_retrieve(ctx, &h, &o, x, N, z, NULL) != CLOOB_OK) return fail(ctx);
        for (int n = 0; n < N; n++) m[0] += z[n * D] / (double)N, m[1] += z[n * D + 1] / (double)N;
        for (int n = 0; n < N; n++) {
            double p = z[n * D] - m[0], q = z[n * D + 1] - m[1];
            c[0] += p * p / N, c[1] += q * q / N, c[2] += p * q / N;
        }
        printf("%g,%.4f,%.4f\n", beta[b], c[2], c[2] / sqrt(c[0] * c[1]));
    }
    return 0;
}

/* ---- the rejected loss ------------------------------------------------------------------------------ */

/* The similarities of matched pairs: U_x with U_y, or with V_y. Adds their sum and the sum of their squares. */
static int add_scores(cloob_ctx *ctx, const float *x, const float *y, int N, int D, double sum[2], double square[2])
{
    static float ux[32 * 16], uy[32 * 16], vy[32 * 16];
    cloob_hopfield images = { x, N, D, CLOOB_DEFAULT_SCALE_HOPFIELD },
                   texts = { y, N, D, CLOOB_DEFAULT_SCALE_HOPFIELD };
    cloob_hopfield_options o;
    cloob_hopfield_options_init(&o);
    o.unit = true;
    if (cloob_hopfield_retrieve(ctx, &images, &o, x, N, ux, NULL) != CLOOB_OK ||
        cloob_hopfield_retrieve(ctx, &images, &o, y, N, uy, NULL) != CLOOB_OK ||
        cloob_hopfield_retrieve(ctx, &texts, &o, y, N, vy, NULL) != CLOOB_OK)
        return fail(ctx);
    for (int i = 0; i < N; i++) {
        double with[2] = { 0, 0 };
        for (int k = 0; k < D; k++)
            with[0] += (double)ux[i * D + k] * uy[i * D + k], with[1] += (double)ux[i * D + k] * vy[i * D + k];
        for (int m = 0; m < 2; m++) sum[m] += with[m], square[m] += with[m] * with[m];
    }
    return 0;
}

/* Pairs of random directions, y a noisy x. Over batches: mean and variance of the similarity of matched pairs and of
 * the loss, for CLOOB and for the loss that contrasts what x retrieves from the images with what y retrieves from the
 * texts. */
static int variance(cloob_ctx *ctx)
{
    enum { N = 32, D = 16, BATCHES = 200 };
    static float x[N * D], y[N * D];
    static const cloob_method method[] = { CLOOB_METHOD_CLOOB, CLOOB_METHOD_CLOOB_UV };
    static const double noise[] = { 0.1, 0.2, 0.3, 0.4 };
    printf("noise,score_cloob,score_uv,score_variance_cloob,score_variance_uv,loss_cloob,loss_uv,loss_variance_cloob,"
           "loss_variance_uv\n");
    for (int k = 0; k < 4; k++) {
        double sum[2] = { 0, 0 }, square[2] = { 0, 0 }, score[2] = { 0, 0 }, squares[2] = { 0, 0 };
        for (int b = 0; b < BATCHES; b++) {
            for (int i = 0; i < N * D; i++) x[i] = (float)normal();
            for (int i = 0; i < N; i++) unit(x + i * D, D);
            for (int i = 0; i < N * D; i++) y[i] = x[i] + (float)(noise[k] * normal());
            for (int i = 0; i < N; i++) unit(y + i * D, D);
            if (add_scores(ctx, x, y, N, D, score, squares)) return 1;
            for (int m = 0; m < 2; m++) {
                cloob_objective_options o;
                cloob_objective_result r;
                cloob_objective_options_init(&o);
                o.method = method[m], o.device = "ref";
                cloob_pairs e = { .x = x, .y = y, .n = N, .d = D };
                if (cloob_objective(ctx, &o, &e, NULL, &r) != CLOOB_OK) return fail(ctx);
                sum[m] += r.loss / BATCHES, square[m] += r.loss * r.loss / BATCHES;
            }
        }
        for (int m = 0; m < 2; m++) score[m] /= N * BATCHES, squares[m] /= N * BATCHES;
        printf("%g,%.6f,%.6f,%.3e,%.3e,%.6f,%.6f,%.3e,%.3e\n", noise[k], score[0], score[1],
               squares[0] - score[0] * score[0], squares[1] - score[1] * score[1], sum[0], sum[1],
               square[0] - sum[0] * sum[0], square[1] - sum[1] * sum[1]);
    }
    return 0;
}

/* ---- the synthetic world ------------------------------------------------------------------------- */

enum { CAPTIONS = 3000, AXES = 64, FACTORS = 8, OBJECT = 0, COLOUR = 1, BACKGROUND = 6, LINE = 1024 };

/* The features that a caption's scene shows and those that its words name, with one axis for each value of each
 * factor. */
typedef struct world {
    float shown[CAPTIONS * AXES], named[CAPTIONS * AXES]; /* (n, AXES) */
    char value[AXES][32];
    int factor[AXES], axes, n;
} world;

static int axis_of(world *w, int factor, const char *value)
{
    for (int a = 0; a < w->axes; a++)
        if (w->factor[a] == factor && strcmp(w->value[a], value) == 0) return a;
    if (w->axes == AXES) return 0;
    snprintf(w->value[w->axes], sizeof w->value[0], "%s", value);
    w->factor[w->axes] = factor;
    return w->axes++;
}

/* One line of factors.tsv (path, split, values) and of naming.tsv (path, split, held out, 0 or 1 each). Captions that
 * name nothing have no direction and are left out. */
static void add_caption(world *w, char *values, char *flags)
{
    char *v = NULL, *t = NULL;
    float *shown = w->shown + w->n * AXES, *named = w->named + w->n * AXES;
    double words = 0;
    strtok_r(values, "\t", &v), strtok_r(flags, "\t", &t);
    const char *split = strtok_r(NULL, "\t", &v);
    if (!split || strcmp(split, "train") != 0) return;
    strtok_r(NULL, "\t", &t), strtok_r(NULL, "\t", &t);
    for (int f = 0; f < FACTORS; f++) {
        const char *value = strtok_r(NULL, "\t\n", &v), *name = strtok_r(NULL, "\t\n", &t);
        if (!value || !name) return;
        int a = axis_of(w, f, value);
        shown[a] = 1, named[a] = *name == '1', words += named[a];
    }
    if (words > 0) unit(named, AXES), w->n++;
    else memset(shown, 0, AXES * sizeof *shown);
}

static int read_world(world *w, const char *dir)
{
    char path[LINE], values[LINE], named[LINE];
    snprintf(path, sizeof path, "%s/factors.tsv", dir);
    FILE *factors = fopen(path, "r");
    snprintf(path, sizeof path, "%s/naming.tsv", dir);
    FILE *naming = fopen(path, "r");
    if (factors && naming && fgets(values, LINE, factors) && fgets(named, LINE, naming))
        while (w->n < CAPTIONS && fgets(values, LINE, factors) && fgets(named, LINE, naming))
            add_caption(w, values, named);
    if (factors) fclose(factors);
    if (naming) fclose(naming);
    if (w->n == 0) fprintf(stderr, "%s: no factors.tsv and naming.tsv of cloob synth\n", dir);
    return w->n > 0;
}

static double correlation(const float *x, int n, int a, int b)
{
    double m[2] = { 0, 0 }, c[3] = { 0, 0, 0 };
    for (int i = 0; i < n; i++) m[0] += x[i * AXES + a] / (double)n, m[1] += x[i * AXES + b] / (double)n;
    for (int i = 0; i < n; i++) {
        double p = x[i * AXES + a] - m[0], q = x[i * AXES + b] - m[1];
        c[0] += p * p, c[1] += q * q, c[2] += p * q;
    }
    return c[0] > 0 && c[1] > 0 ? c[2] / sqrt(c[0] * c[1]) : 0;
}

/* Over the objects and values of a factor that go together in the scenes (correlation above 0.1): the mean correlation
 * of their axes in x. */
static double together(const world *w, const float *x, int factor)
{
    double sum = 0;
    int pairs = 0;
    for (int a = 0; a < w->axes; a++)
        for (int b = 0; b < w->axes; b++)
            if (w->factor[a] == OBJECT && w->factor[b] == factor && correlation(w->shown, w->n, a, b) > 0.1)
                sum += correlation(x, w->n, a, b), pairs++;
    return pairs ? sum / pairs : 0;
}

static int explaining_away(cloob_ctx *ctx, const char *dir)
{
    static world w;
    static float z[CAPTIONS * AXES];
    static const double beta[] = { 0, 1, 2, 4, 8, 14.3, 30, 60 }; /* 0: no retrieval */
    if (!read_world(&w, dir)) return 1;
    printf("beta,object_background,object_colour,scenes_background,scenes_colour\n");
    for (int b = 0; b < 8; b++) {
        cloob_hopfield h = { w.named, w.n, AXES, beta[b] };
        cloob_hopfield_options o;
        cloob_hopfield_options_init(&o);
        o.unit = true;
        memcpy(z, w.named, sizeof z);
        if (beta[b] > 0 && cloob_hopfield_retrieve(ctx, &h, &o, w.named, w.n, z, NULL) != CLOOB_OK) return fail(ctx);
        printf("%g,%.4f,%.4f,%.4f,%.4f\n", beta[b], together(&w, z, BACKGROUND), together(&w, z, COLOUR),
               together(&w, w.shown, BACKGROUND), together(&w, w.shown, COLOUR));
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 || (argc == 3 && strcmp(argv[1], "world") == 0) ? argv[1] : "";
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    int code = 2;
    if (strcmp(what, "mi") == 0) code = mutual_information();
    else if (strcmp(what, "saturation") == 0) code = saturation(ctx);
    else if (strcmp(what, "hopfield") == 0) code = hopfield(ctx);
    else if (strcmp(what, "covariance") == 0) code = covariance(ctx);
    else if (strcmp(what, "variance") == 0) code = variance(ctx);
    else if (strcmp(what, "world") == 0 && argc == 3) code = explaining_away(ctx, argv[2]);
    else fprintf(stderr, "usage: %s mi|saturation|hopfield|covariance|variance|world DIR\n", argv[0]);
    cloob_ctx_destroy(ctx);
    return code;
}
