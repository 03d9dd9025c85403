/* Identities and bounds of the paper's appendix, computed in double without sampling error, as CSV
 * (docs/explanation/theory-exact.md):
 *
 *     cc theory_exact.c -lm -o theory_exact
 *     ./theory_exact jacobian      U_x^T U_y by the mean Jacobian, and the bounds of the Jacobian
 *     ./theory_exact discrete      mutual information = InfoLOOB - DE + KL on a discrete distribution, by critic
 *     ./theory_exact normaliser    the bias of ln Z from few negatives
 *     ./theory_exact capacity      how many random patterns a Hopfield network stores
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double uniform(void)
{
    static unsigned long long s = 88172645463325252ull;
    s ^= s << 13, s ^= s >> 7, s ^= s << 17;
    return ((double)(s >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(void) { return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()); }

static double dot(const double *a, const double *b, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

/* ---- the Jacobian of the softmax ------------------------------------------------------------------ */

enum { PATTERNS = 12, WIDTH = 8, NODES = 64 };

static void softmax(const double *a, double scale, double *p)
{
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < PATTERNS; i++) top = fmax(top, scale * a[i]);
    for (int i = 0; i < PATTERNS; i++) sum += p[i] = exp(scale * a[i] - top);
    for (int i = 0; i < PATTERNS; i++) p[i] /= sum;
}

/* Nodes and weights of Gauss and Legendre for [0, 1], by Newton's method on the polynomial. */
static void quadrature(double *node, double *weight)
{
    for (int k = 0; k < NODES; k++) {
        double z = cos(3.141592653589793 * (k + 0.75) / (NODES + 0.5)), slope = 0;
        for (int step = 0; step < 100; step++) {
            double p = 1, before = 0;
            for (int j = 0; j < NODES; j++) {
                double older = before;
                before = p;
                p = ((2 * j + 1) * z * before - j * older) / (j + 1);
            }
            slope = NODES * (z * p - before) / (z * z - 1);
            z -= p / slope;
            if (fabs(p / slope) < 1e-16) break;
        }
        node[k] = (1 - z) / 2;
        weight[k] = 1 / ((1 - z * z) * slope * slope);
    }
}

/* U_x = mean + U Jm U^T x with Jm the mean of beta (diag p - p p^T) from 0 to beta U^T x: rows of u are patterns. */
static void by_mean_jacobian(const double *u, const double *x, double beta, double *out)
{
    double node[NODES], weight[NODES], a[PATTERNS], p[PATTERNS], w[PATTERNS] = { 0 };
    quadrature(node, weight);
    for (int i = 0; i < PATTERNS; i++) a[i] = dot(u + i * WIDTH, x, WIDTH);
    for (int k = 0; k < NODES; k++) {
        softmax(a, node[k] * beta, p);
        double mean = dot(p, a, PATTERNS);
        for (int i = 0; i < PATTERNS; i++) w[i] += weight[k] * beta * p[i] * (a[i] - mean); /* Jm U^T x */
    }
    for (int c = 0; c < WIDTH; c++) {
        out[c] = 0;
        for (int i = 0; i < PATTERNS; i++) out[c] += (1.0 / PATTERNS + w[i]) * u[i * WIDTH + c];
    }
}

static void retrieve(const double *u, const double *x, double beta, double *out, double *p)
{
    double a[PATTERNS];
    for (int i = 0; i < PATTERNS; i++) a[i] = dot(u + i * WIDTH, x, WIDTH);
    softmax(a, beta, p);
    for (int c = 0; c < WIDTH; c++) {
        out[c] = 0;
        for (int i = 0; i < PATTERNS; i++) out[c] += p[i] * u[i * WIDTH + c];
    }
}

/* The largest eigenvalue of the symmetric, positive semi-definite Jacobian, by power iteration. */
static double spectral_norm(const double *p, double beta)
{
    double v[PATTERNS], next[PATTERNS], length = 0;
    for (int i = 0; i < PATTERNS; i++) v[i] = normal();
    for (int step = 0; step < 5000; step++) {
        double mean = dot(p, v, PATTERNS);
        for (int i = 0; i < PATTERNS; i++) next[i] = beta * p[i] * (v[i] - mean);
        length = sqrt(dot(next, next, PATTERNS));
        for (int i = 0; i < PATTERNS; i++) v[i] = length > 0 ? next[i] / length : 0;
    }
    return length;
}

/* Diagonal minus the sum of the other entries' sizes: 0 in every row of beta (diag p - p p^T). */
static double dominance(const double *p, double beta)
{
    double most = 0;
    for (int i = 0; i < PATTERNS; i++) {
        double others = 0;
        for (int j = 0; j < PATTERNS; j++) others += j != i ? beta * p[i] * p[j] : 0;
        most = fmax(most, fabs(beta * p[i] * (1 - p[i]) - others));
    }
    return most;
}

static void unit(double *x)
{
    double length = sqrt(dot(x, x, WIDTH));
    for (int i = 0; i < WIDTH; i++) x[i] /= length;
}

static int jacobian(void)
{
    static const double beta[] = { 1, 4, 8, 14.3, 30 };
    double u[PATTERNS * WIDTH], x[WIDTH], y[WIDTH];
    for (int i = 0; i < PATTERNS * WIDTH; i++) u[i] = normal();
    for (int i = 0; i < PATTERNS; i++) unit(u + i * WIDTH);
    for (int i = 0; i < WIDTH; i++) x[i] = normal(), y[i] = x[i] + 0.5 * normal();
    unit(x), unit(y);
    printf("beta,product,by_mean_jacobian,difference,spectral_norm,two_m_beta,half_beta,dominance\n");
    for (int b = 0; b < 5; b++) {
        double ux[WIDTH], uy[WIDTH], mx[WIDTH], my[WIDTH], p[PATTERNS], m = 0;
        retrieve(u, y, beta[b], uy, p), by_mean_jacobian(u, y, beta[b], my);
        retrieve(u, x, beta[b], ux, p), by_mean_jacobian(u, x, beta[b], mx);
        for (int i = 0; i < PATTERNS; i++) m = fmax(m, p[i] * (1 - p[i]));
        double direct = dot(ux, uy, WIDTH), by = dot(mx, my, WIDTH);
        printf("%g,%.15g,%.15g,%.3g,%.9g,%.9g,%.9g,%.3g\n", beta[b], direct, by, fabs(direct - by),
               spectral_norm(p, beta[b]), 2 * m * beta[b], beta[b] / 2, dominance(p, beta[b]));
    }
    return 0;
}

/* ---- a discrete joint distribution ----------------------------------------------------------------- */

enum { KINDS = 3 }; /* values of x, and of y */

static const double joint[KINDS][KINDS] = { { .22, .06, .05 }, { .03, .25, .02 }, { .05, .04, .28 } }; /* p(x, y) */

static double of_x(int x) { return joint[x][0] + joint[x][1] + joint[x][2]; }
static double of_y(int y) { return joint[0][y] + joint[1][y] + joint[2][y]; }

typedef struct estimates {
    double information, infoloob, de, de_above, kl;
} estimates;

/* Probability that n draws of x are i, j and n - i - j times the three values. */
static double multinomial(int n, int i, int j)
{
    int k = n - i - j;
    return exp(lgamma(n + 1) - lgamma(i + 1) - lgamma(j + 1) - lgamma(k + 1) + i * log(of_x(0)) + j * log(of_x(1)) +
               k * log(of_x(2)));
}

/* The critic is f(x, y) = (p(x|y) / p(x))^power. InfoLOOB is E[ln f(x, y) - ln mean_j f(x_j, y)] with n negatives x_j;
 * DE = E[ln Z(y)] - E[ln mean], Z(y) = E_x f(x, y); KL is that of p(x|y) from p(x) f / Z. All are sums. */
static estimates estimate(double power, int n)
{
    estimates e = { 0 };
    for (int y = 0; y < KINDS; y++) {
        double f[KINDS], Z = 0, log_mean = 0, above = 0;
        for (int x = 0; x < KINDS; x++) f[x] = pow(joint[x][y] / of_x(x) / of_y(y), power), Z += of_x(x) * f[x];
        for (int i = 0; i <= n; i++)
            for (int j = 0; i + j <= n; j++) {
                double mean = (i * f[0] + j * f[1] + (n - i - j) * f[2]) / n, w = multinomial(n, i, j);
                log_mean += w * log(mean), above += w * Z / mean;
            }
        e.de += of_y(y) * (log(Z) - log_mean);
        e.de_above += of_y(y) * (above - 1);
        for (int x = 0; x < KINDS; x++) {
            double ratio = joint[x][y] / of_x(x) / of_y(y);
            e.information += joint[x][y] * log(ratio);
            e.infoloob += joint[x][y] * (log(f[x]) - log_mean);
            e.kl += joint[x][y] * (log(ratio) - log(f[x] / Z));
        }
    }
    return e;
}

static int discrete(void)
{
    printf("critic_power,negatives,mutual_information,infoloob,de,de_upper_bound,kl,difference\n");
    for (int n = 1; n <= 15; n = 2 * n + 1)
        for (int k = 0; k <= 8; k++) {
            estimates e = estimate(k / 4.0, n);
            printf("%g,%d,%.9f,%.9f,%.9f,%.9f,%.9f,%.3g\n", k / 4.0, n, e.information, e.infoloob, e.de, e.de_above,
                   e.kl, fabs(e.information - (e.infoloob - e.de + e.kl)));
        }
    return 0;
}

/* DE of the best critic against its first-order term, Var f / (2 n Z^2). */
static int normaliser(void)
{
    double first = 0;
    for (int y = 0; y < KINDS; y++) {
        double Z = 0, square = 0;
        for (int x = 0; x < KINDS; x++) {
            double f = joint[x][y] / of_x(x) / of_y(y);
            Z += of_x(x) * f, square += of_x(x) * f * f;
        }
        first += of_y(y) * (square / (Z * Z) - 1) / 2;
    }
    printf("negatives,bias,first_order\n");
    for (int n = 1; n <= 128; n *= 2) printf("%d,%.9f,%.9f\n", n, estimate(1, n).de, first / n);
    return 0;
}

/* ---- storage capacity ------------------------------------------------------------------------------ */

/* Lambert's W on the main branch, for positive arguments. */
static double lambert_w(double z)
{
    double w = log1p(z);
    for (int i = 0; i < 100; i++) w -= (w * exp(w) - z) / (exp(w) * (w + 1));
    return w;
}

/* Random patterns on a sphere of radius K sqrt(d - 1) are all stored with probability 1 - p, when there are at most
 * sqrt(p) c^((d - 1) / 4) of them. */
static int capacity(void)
{
    static const struct {
        double beta, K, p;
        int d;
    } at[] = { { 1, 3, .001, 20 }, { 1, 1, .001, 75 }, { 1, 1, .001, 150 }, { 1, 1, .001, 300 } };
    printf("beta,K,d,p,a_plus_ln_b,c,patterns\n");
    for (int i = 0; i < 4; i++) {
        double a = 2.0 / (at[i].d - 1) * (1 + log(2 * at[i].beta * at[i].K * at[i].K * at[i].p * (at[i].d - 1)));
        double b = 2 * at[i].K * at[i].K * at[i].beta / 5, c = b / lambert_w(exp(a + log(b)));
        printf("%g,%g,%d,%g,%.4f,%.4f,%.4g\n", at[i].beta, at[i].K, at[i].d, at[i].p, a + log(b), c,
               sqrt(at[i].p) * pow(c, (at[i].d - 1) / 4.0));
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    if (strcmp(what, "jacobian") == 0) return jacobian();
    if (strcmp(what, "discrete") == 0) return discrete();
    if (strcmp(what, "normaliser") == 0) return normaliser();
    if (strcmp(what, "capacity") == 0) return capacity();
    fprintf(stderr, "usage: %s jacobian|discrete|normaliser|capacity\n", argv[0]);
    return 2;
}
