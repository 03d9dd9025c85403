/* Scenes by number: which values, which of them the caption names. */
#include "lab/synth/synth.h"

#include <assert.h>

static bool is_held_out(const synth_scene *s)
{
    int object = s->value[SYNTH_OBJECT];
    return synth_pair_held_out(SYNTH_COLOUR, object, s->value[SYNTH_COLOUR]) ||
           synth_pair_held_out(SYNTH_BACKGROUND, object, s->value[SYNTH_BACKGROUND]);
}

/* All values, causes before effects (the order of the enum puts the background before the light). */
static void draw_values(synth_scene *s, double strength)
{
    rnd d = rnd_from(s->key, "values");
    for (int f = 0; f < SYNTH_FACTORS; f++) {
        synth_factor cause = synth_cause((synth_factor)f);
        int value = rnd_below(&d, synth_factors[f].count), bound = rnd_chance(&d, strength);
        if (cause != SYNTH_FACTORS && bound) value = synth_favourite((synth_factor)f, s->value[cause]);
        s->value[f] = (uint8_t)value;
    }
    s->held_out = is_held_out(s);
}

static void draw_named(synth_scene *s)
{
    rnd d = rnd_from(s->key, "named");
    bool silent = rnd_chance(&d, SYNTH_SILENT);
    for (int f = 0; f < SYNTH_FACTORS; f++) /* the table's rates hold over all captions, silent ones included */
        s->named[f] = rnd_chance(&d, synth_factors[f].named / (1 - SYNTH_SILENT)) && !silent;
}

/* Draws again until the scene is held out or not, as asked. More than a third of independent scenes are held
 * out and more than half are not, so the bound is never met. Value `fixed` of factor f when f is one. */
static void draw_until(uint64_t key, bool held_out, double strength, synth_factor f, int fixed, synth_scene *s)
{
    for (uint64_t attempt = 0;; attempt++) {
        assert(attempt < 10000);
        *s = (synth_scene){ .key = rng_subkey(key, attempt) };
        draw_values(s, strength);
        if (f != SYNTH_FACTORS) s->value[f] = (uint8_t)fixed;
        s->held_out = is_held_out(s);
        if (s->held_out == held_out) return;
    }
}

void synth_draw(const synth_world *w, synth_split split, int64_t index, synth_scene *s)
{
    uint64_t key = rng_subkey(rng_key(w->seed, split == SYNTH_TRAIN ? "synth/train" : "synth/val"), (uint64_t)index);
    bool held_out = split == SYNTH_VAL && index % 2 == 1;
    draw_until(key, held_out, held_out ? 0 : w->strength, SYNTH_FACTORS, 0, s);
    draw_named(s);
}

void synth_draw_test(const synth_world *w, synth_factor factor, int64_t index, synth_scene *s)
{
    uint64_t key = rng_subkey(rng_key(w->seed, "synth/test"), (uint64_t)factor);
    int value = (int)(index % synth_factors[factor].count);
    draw_until(rng_subkey(key, (uint64_t)index), true, 0, factor, value, s);
}
