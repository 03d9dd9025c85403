/* A synthetic image-text world: scenes of several factors, captions that name some of them, images.
 *
 * It exists to measure explaining away: in training data the factors go together (fish are mostly blue and
 * mostly on the beach), captions name only some of them, and the test shows combinations that training never had.
 * Which of the factors does an embedding keep?
 *
 * Everything is a pure function of (world, split, index), whatever the thread or the order:
 *
 *     synth_scene s;
 *     synth_draw(&world, SYNTH_TRAIN, i, &s);         the values of the scene, and which the caption names
 *     synth_caption(&s, &text);                       "a photo of two red balls on the beach"
 *     CLOOB_TRY(synth_render(ctx, &s, 64, rgb));      the image
 */
#ifndef SYNTH_SYNTH_H
#define SYNTH_SYNTH_H

#include "core/ctx.h"
#include "core/sbuf.h"
#include "core/rng.h"

/* ---- the factors --------------------------------------------------------------------------------- */

typedef enum synth_factor {
    SYNTH_OBJECT,
    SYNTH_COLOUR,
    SYNTH_MATERIAL,
    SYNTH_SIZE,
    SYNTH_COUNT,
    SYNTH_POSITION,
    SYNTH_BACKGROUND,
    SYNTH_LIGHT,
    SYNTH_FACTORS
} synth_factor;

/* Values in alphabetical order, so that a value's number is its place among the sorted class folders. */
enum {
    SYNTH_BALL,
    SYNTH_BOAT,
    SYNTH_BOTTLE,
    SYNTH_BUTTERFLY,
    SYNTH_CAR,
    SYNTH_CUBE,
    SYNTH_CUP,
    SYNTH_FISH,
    SYNTH_HOUSE,
    SYNTH_MUSHROOM,
    SYNTH_STAR,
    SYNTH_TREE,
    SYNTH_OBJECTS
};
enum {
    SYNTH_BLUE,
    SYNTH_GREEN,
    SYNTH_ORANGE,
    SYNTH_PINK,
    SYNTH_PURPLE,
    SYNTH_RED,
    SYNTH_WHITE,
    SYNTH_YELLOW,
    SYNTH_COLOURS
};
enum { SYNTH_CHECKED, SYNTH_DOTTED, SYNTH_MATTE, SYNTH_SHINY, SYNTH_STRIPED, SYNTH_WOODEN, SYNTH_MATERIALS };
enum { SYNTH_LARGE, SYNTH_MEDIUM, SYNTH_SMALL, SYNTH_SIZES };
enum { SYNTH_FOUR, SYNTH_ONE, SYNTH_THREE, SYNTH_TWO, SYNTH_COUNTS };
enum { SYNTH_CENTRE, SYNTH_LEFT, SYNTH_RIGHT, SYNTH_POSITIONS };
enum { SYNTH_BEACH, SYNTH_DESERT, SYNTH_FOREST, SYNTH_MEADOW, SYNTH_ROOM, SYNTH_SNOW, SYNTH_STREET, SYNTH_BACKGROUNDS };
enum { SYNTH_DAY, SYNTH_DUSK, SYNTH_FOG, SYNTH_NIGHT, SYNTH_LIGHTS };

enum { SYNTH_MAX_VALUES = SYNTH_OBJECTS, SYNTH_MAX_WORDS = 4, SYNTH_MAX_TEMPLATES = 6 };

typedef struct synth_value {
    const char *name;                  /* class, folder and tag: one word */
    const char *word[SYNTH_MAX_WORDS]; /* how a sentence may say it, the usual way first; NULL after the last */
} synth_value;

typedef struct synth_factor_row {
    const char *name;
    double named; /* the share of captions that name this factor */
    int count;    /* of values */
    synth_value value[SYNTH_MAX_VALUES];
    const char
        *template_[SYNTH_MAX_TEMPLATES]; /* prompts; NULL after the last. Each stands for one with every object where it
                                                 * says <object> or <objects>, every <colour>, every <place> */
} synth_factor_row;

/* The share of captions that deliberately name nothing ("untitled"); part of the rates above. */
#define SYNTH_SILENT 0.05

extern const synth_factor_row synth_factors[SYNTH_FACTORS];

/* Correlations of training data: with the world's strength as probability, `factor` takes its cause's favourite.
 * Colour and background follow the object, material follows the colour, light the background; the others are
 * free. */
synth_factor synth_cause(synth_factor factor);             /* SYNTH_FACTORS when free */
int synth_favourite(synth_factor factor, int cause_value); /* -1 when free */

/* True for the (object, colour) and (object, background) pairs that training never shows: two colours and two
 * backgrounds of every object, never its favourites. */
bool synth_pair_held_out(synth_factor factor, int object, int value);

/* ---- scenes -------------------------------------------------------------------------------------- */

typedef struct synth_world {
    uint64_t seed;
    double strength; /* of the co-occurrences: 0 independent, 1 always the favourite */
} synth_world;

#define SYNTH_STRENGTH 0.25 /* unless the user says otherwise */

typedef enum synth_split { SYNTH_TRAIN, SYNTH_VAL } synth_split;

typedef struct synth_scene {
    uint8_t value[SYNTH_FACTORS];
    bool named[SYNTH_FACTORS]; /* named by the caption */
    bool held_out;             /* holds a pair that training never shows */
    uint64_t key;              /* of every other choice: pose, layout, wording */
} synth_scene;

/* Training scenes are never held out. Validation scenes with an even index are drawn like training scenes;
 * the odd ones are held out, all factors independent. */
void synth_draw(const synth_world *w, synth_split split, int64_t index, synth_scene *s);

/* A test scene for one factor: its value is index modulo the number of values, all others are independent and
 * uniform, and the scene is held out. Its caption names nothing. */
void synth_draw_test(const synth_world *w, synth_factor factor, int64_t index, synth_scene *s);

/* ---- text and image of a scene --------------------------------------------------------------------- */

/* Appends the caption: one line, ASCII, neither tab nor quote. */
void synth_caption(const synth_scene *s, sbuf *out);
/* Several of them: balls, butterflies, fish. */
void synth_put_plural(sbuf *out, const char *noun);

enum { SYNTH_MIN_SIZE = 16, SYNTH_MAX_SIZE = 2048 };

/* rgb: (size, size, 3), overwritten. Any number of threads, each with its own context. */
cloob_status synth_render(cloob_ctx *ctx, const synth_scene *s, int64_t size, uint8_t *rgb);

/* Random choices in a row: number n of a key, then n + 1, ... A pure function of the key, like rng.h, for
 * code that makes many small choices in a fixed order. */

typedef struct rnd {
    uint64_t key, next;
} rnd;

/* Independent of other `what` of the same key. */
static inline rnd rnd_from(uint64_t key, const char *what) { return (rnd){ rng_subkey(key, rng_hash(what)), 0 }; }
static inline double rnd_range(rnd *d, double low, double high)
{
    return low + (high - low) * rng_uniform(d->key, d->next++);
}
static inline int rnd_below(rnd *d, int bound) { return (int)rng_below(d->key, d->next++, (uint64_t)bound); }
static inline int rnd_chance(rnd *d, double p) { return rng_uniform(d->key, d->next++) < p; } /* 1 with probability p */

#endif
