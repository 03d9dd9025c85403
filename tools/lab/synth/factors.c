/* Tables of the factors, their words, favourite combinations and held-out combinations; drawing scenes from them.
 * Prompts run over all values of <object>, <objects>, <colour> and <place>, so that no favourite value represents a
 * class. */
#include "lab/synth/synth.h"

#include <assert.h>

/* clang-format off */
const synth_factor_row synth_factors[SYNTH_FACTORS] = {
    [SYNTH_OBJECT] = { "object", 0.90, SYNTH_OBJECTS, {
        [SYNTH_BALL]      = { "ball",      { "ball", "sphere" } },
        [SYNTH_BOAT]      = { "boat",      { "boat", "sailboat", "ship" } },
        [SYNTH_BOTTLE]    = { "bottle",    { "bottle", "flask" } },
        [SYNTH_BUTTERFLY] = { "butterfly", { "butterfly", "moth" } },
        [SYNTH_CAR]       = { "car",       { "car", "automobile" } },
        [SYNTH_CUBE]      = { "cube",      { "cube", "block" } },
        [SYNTH_CUP]       = { "cup",       { "cup", "mug" } },
        [SYNTH_FISH]      = { "fish",      { "fish" } },
        [SYNTH_HOUSE]     = { "house",     { "house", "cottage", "hut" } },
        [SYNTH_MUSHROOM]  = { "mushroom",  { "mushroom", "toadstool" } },
        [SYNTH_STAR]      = { "star",      { "star" } },
        [SYNTH_TREE]      = { "tree",      { "tree", "fir" } } },
        { "a photo of a <colour> {} <place>." } },
    [SYNTH_COLOUR] = { "colour", 0.30, SYNTH_COLOURS, {
        [SYNTH_BLUE]   = { "blue",   { "blue", "azure" } },
        [SYNTH_GREEN]  = { "green",  { "green", "emerald" } },
        [SYNTH_ORANGE] = { "orange", { "orange" } },
        [SYNTH_PINK]   = { "pink",   { "pink", "rose" } },
        [SYNTH_PURPLE] = { "purple", { "purple", "violet" } },
        [SYNTH_RED]    = { "red",    { "red", "crimson", "scarlet" } },
        [SYNTH_WHITE]  = { "white",  { "white" } },
        [SYNTH_YELLOW] = { "yellow", { "yellow", "golden" } } },
        { "a photo of a {} <object>." } },
    [SYNTH_MATERIAL] = { "material", 0.20, SYNTH_MATERIALS, {
        [SYNTH_CHECKED] = { "checked", { "checked", "chequered" } },
        [SYNTH_DOTTED]  = { "dotted",  { "dotted", "spotted" } },
        [SYNTH_MATTE]   = { "matte",   { "matte", "dull" } },
        [SYNTH_SHINY]   = { "shiny",   { "shiny", "glossy", "polished" } },
        [SYNTH_STRIPED] = { "striped", { "striped", "stripy" } },
        [SYNTH_WOODEN]  = { "wooden",  { "wooden" } } },
        { "a photo of a {} <object>." } },
    [SYNTH_SIZE] = { "size", 0.15, SYNTH_SIZES, {
        [SYNTH_LARGE]  = { "large",  { "large", "big", "huge" } },
        [SYNTH_MEDIUM] = { "medium", { "medium", "mid-sized" } },
        [SYNTH_SMALL]  = { "small",  { "small", "little", "tiny" } } },
        { "a photo of a {} <object>." } },
    [SYNTH_COUNT] = { "count", 0.25, SYNTH_COUNTS, {
        [SYNTH_FOUR]  = { "four",  { "four" } },
        [SYNTH_ONE]   = { "one",   { "one", "a single" } },
        [SYNTH_THREE] = { "three", { "three", "a trio of" } },
        [SYNTH_TWO]   = { "two",   { "two", "a pair of" } } },
        { "a photo of {} <objects>." } },
    [SYNTH_POSITION] = { "position", 0.15, SYNTH_POSITIONS, {
        [SYNTH_CENTRE] = { "centre", { "at the centre", "in the centre", "in the middle" } },
        [SYNTH_LEFT]   = { "left",   { "at the left", "on the left", "to the left" } },
        [SYNTH_RIGHT]  = { "right",  { "at the right", "on the right", "to the right" } } },
        { "a photo of a <object> at the {}." } },
    [SYNTH_BACKGROUND] = { "background", 0.25, SYNTH_BACKGROUNDS, {
        [SYNTH_BEACH]  = { "beach",  { "on the beach", "at the beach", "by the sea" } },
        [SYNTH_DESERT] = { "desert", { "in the desert", "among the dunes" } },
        [SYNTH_FOREST] = { "forest", { "in the forest", "in the woods" } },
        [SYNTH_MEADOW] = { "meadow", { "in the meadow", "on a meadow", "on the grass" } },
        [SYNTH_ROOM]   = { "room",   { "in the room", "in a room", "indoors" } },
        [SYNTH_SNOW]   = { "snow",   { "in the snow", "on snow" } },
        [SYNTH_STREET] = { "street", { "in the street", "on the street", "on the road" } } },
        { "a photo of a <object> in the {}." } },
    [SYNTH_LIGHT] = { "light", 0.15, SYNTH_LIGHTS, {
        [SYNTH_DAY]   = { "day",   { "by day", "in daylight" } },
        [SYNTH_DUSK]  = { "dusk",  { "at dusk", "at sunset" } },
        [SYNTH_FOG]   = { "fog",   { "in fog", "in the mist" } },
        [SYNTH_NIGHT] = { "night", { "at night", "by moonlight" } } },
        { "a {} photo of a <object>." } },
};

/* Of each object: the favourites, and the colours and backgrounds that training never shows with it. Each colour is
 * held out three times, each background three or four times. */
typedef struct object_row {
    uint8_t colour, background, no_colour[2], no_background[2];
} object_row;

static const object_row objects[SYNTH_OBJECTS] = {
    [SYNTH_BALL]        = { SYNTH_RED,     SYNTH_MEADOW,  { SYNTH_GREEN, SYNTH_WHITE }, { SYNTH_ROOM, SYNTH_SNOW } },
    [SYNTH_BOAT]        = { SYNTH_WHITE,   SYNTH_BEACH,   { SYNTH_PURPLE, SYNTH_RED }, { SYNTH_FOREST, SYNTH_STREET } },
    [SYNTH_BOTTLE]      = { SYNTH_GREEN,   SYNTH_DESERT,  { SYNTH_ORANGE, SYNTH_PINK }, { SYNTH_BEACH, SYNTH_MEADOW } },
    [SYNTH_BUTTERFLY]   = { SYNTH_PURPLE,  SYNTH_MEADOW,  { SYNTH_BLUE, SYNTH_YELLOW }, { SYNTH_DESERT, SYNTH_ROOM } },
    [SYNTH_CAR]         = { SYNTH_RED,     SYNTH_STREET,  { SYNTH_GREEN, SYNTH_PINK }, { SYNTH_BEACH, SYNTH_FOREST } },
    [SYNTH_CUBE]        = { SYNTH_YELLOW,  SYNTH_ROOM,    { SYNTH_BLUE, SYNTH_PURPLE }, { SYNTH_DESERT, SYNTH_SNOW } },
    [SYNTH_CUP]         = { SYNTH_BLUE,    SYNTH_ROOM,    { SYNTH_ORANGE, SYNTH_RED }, { SYNTH_FOREST, SYNTH_MEADOW } },
    [SYNTH_FISH]        = { SYNTH_BLUE,    SYNTH_BEACH,   { SYNTH_GREEN, SYNTH_PURPLE }, { SYNTH_SNOW, SYNTH_STREET } },
    [SYNTH_HOUSE]       = { SYNTH_PINK,    SYNTH_SNOW,    { SYNTH_BLUE, SYNTH_WHITE }, { SYNTH_BEACH, SYNTH_DESERT } },
    [SYNTH_MUSHROOM]    = { SYNTH_ORANGE,  SYNTH_FOREST,  { SYNTH_WHITE, SYNTH_YELLOW }, { SYNTH_ROOM, SYNTH_STREET } },
    [SYNTH_STAR]        = { SYNTH_YELLOW,  SYNTH_SNOW,    { SYNTH_ORANGE, SYNTH_RED }, { SYNTH_MEADOW, SYNTH_STREET } },
    [SYNTH_TREE]        = { SYNTH_GREEN,   SYNTH_FOREST,  { SYNTH_PINK, SYNTH_YELLOW }, { SYNTH_BEACH, SYNTH_DESERT } },
};

static const uint8_t favourite_material[SYNTH_COLOURS] = {
    [SYNTH_BLUE]   = SYNTH_STRIPED, [SYNTH_GREEN] = SYNTH_SHINY,  [SYNTH_ORANGE] = SYNTH_DOTTED, [SYNTH_PINK] = SYNTH_CHECKED,
    [SYNTH_PURPLE] = SYNTH_DOTTED,  [SYNTH_RED] = SYNTH_SHINY,    [SYNTH_WHITE] = SYNTH_WOODEN,  [SYNTH_YELLOW] = SYNTH_MATTE,
};

static const uint8_t favourite_light[SYNTH_BACKGROUNDS] = {
    [SYNTH_BEACH]  = SYNTH_DAY,   [SYNTH_DESERT] = SYNTH_DUSK, [SYNTH_FOREST] = SYNTH_FOG,
    [SYNTH_MEADOW] = SYNTH_DAY,   [SYNTH_ROOM] = SYNTH_NIGHT,  [SYNTH_SNOW] = SYNTH_FOG,
    [SYNTH_STREET] = SYNTH_NIGHT,
};
/* clang-format on */

synth_factor synth_cause(synth_factor factor)
{
    switch (factor) {
    case SYNTH_COLOUR:
    case SYNTH_BACKGROUND: return SYNTH_OBJECT;
    case SYNTH_MATERIAL: return SYNTH_COLOUR;
    case SYNTH_LIGHT: return SYNTH_BACKGROUND;
    default: return SYNTH_FACTORS;
    }
}

int synth_favourite(synth_factor factor, int cause_value)
{
    switch (factor) {
    case SYNTH_COLOUR: return objects[cause_value].colour;
    case SYNTH_MATERIAL: return favourite_material[cause_value];
    case SYNTH_BACKGROUND: return objects[cause_value].background;
    case SYNTH_LIGHT: return favourite_light[cause_value];
    default: return -1;
    }
}

bool synth_pair_held_out(synth_factor factor, int object, int value)
{
    const object_row *row = &objects[object];
    if (factor == SYNTH_COLOUR) return value == row->no_colour[0] || value == row->no_colour[1];
    if (factor == SYNTH_BACKGROUND) return value == row->no_background[0] || value == row->no_background[1];
    return false;
}

/* ---- scenes by number: which values, which of them the caption names ------------------------------- */

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
    for (int f = 0; f < SYNTH_FACTORS; f++) /* the rates of the table are over all captions, silent ones included */
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
