/* The shapes. */
#include "optim/schedule.h"

#include <math.h>
#include <string.h>

static const char *const names[] = { "cosine", "cosine-restarts", "const", "const-cooldown" };

bool schedule_from_name(const char *name, schedule_kind *out)
{
    for (int i = 0; i < 4; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (schedule_kind)i;
            return true;
        }
    return false;
}

static double half_cosine(double t)
{
    double v = 0.5 * (1.0 + cos(3.14159265358979323846 * t));
    return v > 0 ? v : 0;
}

double schedule_scale(const schedule *s, int64_t step)
{
    if (step < s->warmup) return (double)step / (double)s->warmup;
    int64_t span = s->total - s->warmup > 1 ? s->total - s->warmup : 1, left = s->total - step;
    double t = (double)(step - s->warmup) / (double)span;
    switch (s->kind) {
    case SCHEDULE_COSINE: return half_cosine(t);
    case SCHEDULE_COSINE_RESTARTS:
        if (t >= 1) return 0;
        if (s->cycle > 0) return half_cosine((double)((step - s->warmup) % s->cycle) / (double)s->cycle);
        return half_cosine(fmod((double)s->cycles * t, 1.0));
    case SCHEDULE_CONST: return 1;
    case SCHEDULE_CONST_COOLDOWN:
        if (s->cooldown < 1 || left >= s->cooldown) return 1;
        return left > 0 ? (double)left / (double)s->cooldown : 0;
    }
    return 1;
}

int64_t schedule_cycle(const schedule *s, int64_t step)
{
    int64_t past = step - s->warmup, span = s->total - s->warmup > 1 ? s->total - s->warmup : 1;
    if (s->kind != SCHEDULE_COSINE_RESTARTS || past < 0) return 0;
    if (s->cycle > 0) return past / s->cycle;
    int64_t at = (int64_t)((double)s->cycles * (double)past / (double)span);
    return at < s->cycles ? at : s->cycles - 1;
}
