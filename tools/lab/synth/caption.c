/* Captions: a small grammar that names factors of a scene, with the variety of captions on the web. */
/* clang-format off
 *
 *     caption  = filler                               when nothing is named
 *              | word, word, ...                      tags in any order
 *              | the NOUN is ADJECTIVE and ... PLACES
 *              | PLACES: PHRASE
 *              | OPENING PHRASE PLACES CLOSING
 *     PHRASE   = DETERMINER ADJECTIVES NOUN           "two small red balls"; "thing" when the object is not named
 *     PLACES   = position, background and light in any order
 *
 * Words that belong to a factor's value appear only when that factor is named. So where the number is not named the
 * noun is singular however many there are, as in so many captions of the web. */
/* clang-format on */
#include "lab/synth/synth.h"

#include <stdlib.h>
#include <string.h>

typedef struct voice {
    const synth_scene *s;
    rnd d;
    sbuf *out;
} voice;

#define PICK(d, list) (list)[rnd_below((d), (int)(sizeof(list) / sizeof *(list)))]

static const synth_value *value_of(const synth_scene *s, int factor)
{
    return &synth_factors[factor].value[s->value[factor]];
}

/* The usual word most of the time, else any of the others. */
static const char *word_for(voice *v, int factor)
{
    const synth_value *value = value_of(v->s, factor);
    int words = 0;
    while (words < SYNTH_MAX_WORDS && value->word[words]) words++;
    bool usual = rnd_chance(&v->d, 0.8);
    int other = rnd_below(&v->d, words > 1 ? words - 1 : 1);
    return value->word[usual || words == 1 ? 0 : 1 + other];
}

static void shuffle(rnd *d, const char **item, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int j = rnd_below(d, i + 1);
        const char *kept = item[i];
        item[i] = item[j], item[j] = kept;
    }
}

/* True unless the caption says that there are several. */
static bool is_one(const synth_scene *s) { return !s->named[SYNTH_COUNT] || s->value[SYNTH_COUNT] == SYNTH_ONE; }

void synth_put_plural(sbuf *out, const char *noun)
{
    size_t n = strlen(noun);
    if (strcmp(noun, "fish") == 0) sbuf_puts(out, noun);
    else if (noun[n - 1] == 'y') sbuf_printf(out, "%.*sies", (int)n - 1, noun);
    else sbuf_printf(out, "%ss", noun);
}

/* ---- the phrase ---------------------------------------------------------------------------------- */

static void put_noun(voice *v)
{
    static const char *const things[] = { "thing", "thing", "object", "item" };
    const char *noun = v->s->named[SYNTH_OBJECT] ? word_for(v, SYNTH_OBJECT) : PICK(&v->d, things);
    if (is_one(v->s)) sbuf_puts(v->out, noun);
    else synth_put_plural(v->out, noun);
}

static int gather_adjectives(voice *v, const char **word)
{
    static const synth_factor order[2][3] = { { SYNTH_SIZE, SYNTH_COLOUR, SYNTH_MATERIAL },
                                              { SYNTH_SIZE, SYNTH_MATERIAL, SYNTH_COLOUR } };
    const synth_factor *f = order[rnd_below(&v->d, 2)];
    int n = 0;
    for (int i = 0; i < 3; i++)
        if (v->s->named[f[i]]) word[n++] = word_for(v, (int)f[i]);
    return n;
}

/* The words before the adjectives; an indefinite article is chosen when the next word is known. */
static const char *determiner(voice *v)
{
    static const char *const one[] = { "a", "a", "a", "a", "the", "this", "my" };
    return v->s->named[SYNTH_COUNT] ? word_for(v, SYNTH_COUNT) : PICK(&v->d, one);
}

/* Gives the "a" written at `at` its n when the next letter is a vowel. */
static void fix_article(sbuf *s, size_t at)
{
    if (s->failed || s->len < at + 3 || strncmp(s->data + at, "a ", 2) != 0 || !strchr("aeiou", s->data[at + 2]))
        return;
    char *rest = strdup(s->data + at + 1);
    s->len = at + 1;
    sbuf_putc(s, 'n');
    if (rest) sbuf_puts(s, rest);
    else s->failed = true;
    free(rest);
}

static void put_phrase(voice *v)
{
    const char *adjective[3], *first = determiner(v);
    size_t at = v->out->len;
    if (first[0]) sbuf_printf(v->out, "%s ", first);
    int n = gather_adjectives(v, adjective);
    const char *between = rnd_chance(&v->d, 0.15) ? ", " : " ";
    for (int i = 0; i < n; i++) sbuf_printf(v->out, "%s%s", adjective[i], i + 1 < n ? between : " ");
    put_noun(v);
    fix_article(v->out, at);
}

/* ---- around it ----------------------------------------------------------------------------------- */

static int gather_places(voice *v, const char **place)
{
    int n = 0;
    if (v->s->named[SYNTH_POSITION]) place[n++] = word_for(v, SYNTH_POSITION);
    if (v->s->named[SYNTH_BACKGROUND]) place[n++] = word_for(v, SYNTH_BACKGROUND);
    if (v->s->named[SYNTH_LIGHT]) place[n++] = word_for(v, SYNTH_LIGHT);
    shuffle(&v->d, place, n);
    return n;
}

static void put_places(voice *v, const char **place, int n)
{
    for (int i = 0; i < n; i++) {
        if (i) sbuf_puts(v->out, rnd_chance(&v->d, 0.2) ? ", " : " ");
        sbuf_puts(v->out, place[i]);
    }
}

static void put_closing(voice *v)
{
    static const char *const closing[] = { ".",        ".",           "!",      " - stock photo",    " #nofilter",
                                           " by anna", " (own work)", " in hd", ", seen last year",  " | free download",
                                           " :)",      " for sale",   " ...",   ", see the website", " no. 7" };
    if (rnd_chance(&v->d, 0.5)) sbuf_puts(v->out, PICK(&v->d, closing));
}

/* "a beach scene with", "a night photo of": the value's own name as an adjective, which then is not repeated
 * again. */
static bool put_scene_opening(voice *v, synth_factor f, const char *rest)
{
    if (!v->s->named[f] || !rnd_chance(&v->d, 0.25)) return false;
    sbuf_printf(v->out, "a %s %s ", value_of(v->s, (int)f)->name, rest);
    return true;
}

static void put_opening(voice *v)
{
    static const char *const opening[] = {
        "",         "",         "",        "a photo of ", "a photo of ", "photo of ", "a picture of ", "an image of ",
        "look at ", "i found ", "we saw ", "here: ",      "just ",       "new: "
    };
    sbuf_puts(v->out, PICK(&v->d, opening));
}

/* ---- the forms ----------------------------------------------------------------------------------- */

static void say_filler(voice *v)
{
    static const char *const filler[] = {
        "untitled",       "no caption",    "my favourite shot",  "look what i found",           "picture by a friend",
        "click for more", "holiday album", "what do you think?", "for sale, ask for the price", "a photo to remember",
        "stock image"
    };
    if (rnd_chance(&v->d, 0.3)) sbuf_printf(v->out, "img_%04d", rnd_below(&v->d, 10000));
    else sbuf_puts(v->out, PICK(&v->d, filler));
}

static void say_tags(voice *v)
{
    const char *tag[SYNTH_FACTORS];
    int n = 0;
    for (int f = 0; f < SYNTH_FACTORS; f++)
        if (v->s->named[f]) tag[n++] = value_of(v->s, f)->name;
    shuffle(&v->d, tag, n);
    for (int i = 0; i < n; i++) sbuf_printf(v->out, "%s%s", i ? ", " : "", tag[i]);
}

static void say_predicate(voice *v)
{
    const char *adjective[3], *place[3];
    if (v->s->named[SYNTH_COUNT] && !is_one(v->s)) sbuf_printf(v->out, "the %s ", value_of(v->s, SYNTH_COUNT)->name);
    else sbuf_puts(v->out, v->s->named[SYNTH_COUNT] ? "the one " : "the ");
    put_noun(v);
    sbuf_puts(v->out, is_one(v->s) ? " is " : " are ");
    int n = gather_adjectives(v, adjective), places = gather_places(v, place);
    for (int i = 0; i < n; i++) sbuf_printf(v->out, "%s%s", i == 0 ? "" : i + 1 < n ? ", " : " and ", adjective[i]);
    if (n && places) sbuf_puts(v->out, ", ");
    put_places(v, place, places);
    put_closing(v);
}

static void say_place_first(voice *v)
{
    const char *place[3];
    put_places(v, place, gather_places(v, place));
    sbuf_puts(v->out, rnd_chance(&v->d, 0.5) ? ": " : ", ");
    put_phrase(v);
    put_closing(v);
}

static void say_sentence(voice *v)
{
    synth_scene rest = *v->s; /* what remains to be named after the opening */
    const char *place[3];
    size_t at = v->out->len;
    if (put_scene_opening(v, SYNTH_BACKGROUND, "scene with")) rest.named[SYNTH_BACKGROUND] = false;
    else if (put_scene_opening(v, SYNTH_LIGHT, rnd_chance(&v->d, 0.5) ? "photo of" : "picture of"))
        rest.named[SYNTH_LIGHT] = false;
    else put_opening(v);
    fix_article(v->out, at);
    const synth_scene *whole = v->s;
    v->s = &rest;
    put_phrase(v);
    int places = gather_places(v, place);
    if (places) sbuf_puts(v->out, rnd_chance(&v->d, 0.2) ? ", " : " ");
    put_places(v, place, places);
    put_closing(v);
    v->s = whole;
}

void synth_caption(const synth_scene *s, sbuf *out)
{
    voice v = { s, rnd_from(s->key, "caption"), out };
    bool any = false, adjective = s->named[SYNTH_COLOUR] || s->named[SYNTH_MATERIAL] || s->named[SYNTH_SIZE];
    bool place = s->named[SYNTH_POSITION] || s->named[SYNTH_BACKGROUND] || s->named[SYNTH_LIGHT];
    for (int f = 0; f < SYNTH_FACTORS; f++) any = any || s->named[f];
    double form = rnd_range(&v.d, 0, 1);
    if (!any) say_filler(&v);
    else if (form < 0.12) say_tags(&v);
    else if (form < 0.27 && (adjective || place)) say_predicate(&v);
    else if (form < 0.37 && place) say_place_first(&v);
    else say_sentence(&v);
}
