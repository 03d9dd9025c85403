/* The ground truth, the prompts and the description of a set, as text. */
#include "lab/synth/write.h"

#include <stdio.h>
#include <string.h>

#include "core/json.h"

static const char *value_name(int factor, int value) { return synth_factors[factor].value[value].name; }

void synth_put_header(sbuf *s, synth_list list)
{
    sbuf_puts(s, list == SYNTH_NAMING ? "filepath\tsplit\theld_out" : "filepath\tsplit");
    for (int f = 0; f < SYNTH_FACTORS; f++) sbuf_printf(s, "\t%s", synth_factors[f].name);
    sbuf_putc(s, '\n');
}

void synth_put_row(sbuf *s, synth_list list, const char *file, const char *split, const synth_scene *scene)
{
    sbuf_printf(s, "%s\t%s", file, split);
    if (list == SYNTH_NAMING) sbuf_printf(s, "\t%d", scene->held_out);
    for (int f = 0; f < SYNTH_FACTORS; f++)
        if (list == SYNTH_NAMING) sbuf_printf(s, "\t%d", scene->named[f]);
        else sbuf_printf(s, "\t%s", value_name(f, scene->value[f]));
    sbuf_putc(s, '\n');
}

void synth_put_truth(sbuf *s, const synth_scene *scene)
{
    json_out w = { .spaced = true };
    json_begin(&w, NULL, '{');
    for (int f = 0; f < SYNTH_FACTORS; f++) json_put_text(&w, synth_factors[f].name, value_name(f, scene->value[f]));
    json_begin(&w, "named", '[');
    for (int f = 0; f < SYNTH_FACTORS; f++)
        if (scene->named[f]) json_put_text(&w, NULL, synth_factors[f].name);
    json_end(&w);
    json_put_bool(&w, "held_out", scene->held_out);
    json_end(&w);
    json_out_append(&w, s);
}

/* ---- prompts ------------------------------------------------------------------------------------- */

static const char *usual(synth_factor f, int v) { return synth_factors[f].value[v].word[0]; }

/* A word at a mark; an article before it gets its n. */
static void put_word(sbuf *s, const char *word)
{
    bool article = s->len > 2 && strncmp(s->data + s->len - 3, " a ", 3) == 0 && strchr("aeiou", word[0]);
    if (article) s->len--;
    sbuf_printf(s, "%s%s", article ? "n " : "", word);
}

/* at: values of object, colour and background, for the marks. */
static void put_filled(sbuf *s, const char *t, const int at[3])
{
    while (*t) {
        size_t n = strcspn(t, "<");
        sbuf_printf(s, "%.*s", (int)n, t);
        t += n;
        if (!*t) return;
        if (strncmp(t, "<objects>", 9) == 0) synth_put_plural(s, usual(SYNTH_OBJECT, at[0]));
        else if (strncmp(t, "<object>", 8) == 0) put_word(s, usual(SYNTH_OBJECT, at[0]));
        else if (strncmp(t, "<colour>", 8) == 0) put_word(s, usual(SYNTH_COLOUR, at[1]));
        else put_word(s, usual(SYNTH_BACKGROUND, at[2]));
        t += strcspn(t, ">") + 1;
    }
}

/* One prompt for every combination of the values that the template has marks for. */
static void put_template(json_out *w, const char *t)
{
    int objects = strstr(t, "<object") ? SYNTH_OBJECTS : 1, colours = strstr(t, "<colour>") ? SYNTH_COLOURS : 1,
        places = strstr(t, "<place>") ? SYNTH_BACKGROUNDS : 1, at[3];
    for (at[0] = 0; at[0] < objects; at[0]++)
        for (at[1] = 0; at[1] < colours; at[1]++)
            for (at[2] = 0; at[2] < places; at[2]++) {
                sbuf text = { 0 };
                put_filled(&text, t, at);
                json_put_text(w, NULL, text.data);
                w->failed |= text.failed;
                sbuf_release(&text);
            }
}

void synth_put_prompts(sbuf *s)
{
    json_out w = { .spaced = true, .lines = 2 };
    json_begin(&w, NULL, '{');
    for (const synth_factor_row *row = synth_factors; row < synth_factors + SYNTH_FACTORS; row++) {
        json_begin(&w, row->name, '{');
        json_begin(&w, "classes", '[');
        for (int v = 0; v < row->count; v++) json_put_text(&w, NULL, row->value[v].name);
        json_end(&w);
        json_begin(&w, "templates", '[');
        for (int t = 0; t < SYNTH_MAX_TEMPLATES && row->template_[t]; t++) put_template(&w, row->template_[t]);
        json_end(&w);
        json_put_text(&w, "metric", "accuracy");
        json_end(&w);
    }
    json_end(&w);
    json_out_append(&w, s);
}

/* ---- the mark ------------------------------------------------------------------------------------ */

static void put_favourites(json_out *w, synth_factor f)
{
    synth_factor cause = synth_cause(f);
    if (cause == SYNTH_FACTORS) return;
    json_begin(w, synth_factors[f].name, '{');
    json_put_text(w, "of", synth_factors[cause].name);
    for (int v = 0; v < synth_factors[cause].count; v++)
        json_put_text(w, value_name((int)cause, v), value_name((int)f, synth_favourite(f, v)));
    json_end(w);
}

static void put_held_out(json_out *w, synth_factor f)
{
    json_begin(w, synth_factors[f].name, '{');
    for (int o = 0; o < SYNTH_OBJECTS; o++) {
        json_begin(w, value_name(SYNTH_OBJECT, o), '[');
        for (int v = 0; v < synth_factors[f].count; v++)
            if (synth_pair_held_out(f, o, v)) json_put_text(w, NULL, value_name((int)f, v));
        json_end(w);
    }
    json_end(w);
}

static void put_options(json_out *w, const synth_options *o)
{
    char seed[24];
    int bytes = snprintf(seed, sizeof seed, "%llu", (unsigned long long)o->seed);
    json_put_int(w, "cloob_synth", 1);
    json_put_raw(w, "seed", seed, (size_t)bytes);
    json_members(w, J_OF(o, count), J_INT("val_count", synth_val_count(o)), J_INT("per_class", synth_per_class(o)),
                 J_OF(o, size), J_TEXT("format", o->format == SYNTH_CSV ? "csv" : "webdataset"),
                 J_NUMBER("strength", o->strength, 0));
}

void synth_put_mark(sbuf *s, const synth_options *o)
{
    json_out w = { .spaced = true, .lines = 1 };
    json_begin(&w, NULL, '{');
    put_options(&w, o);
    json_begin(&w, "named", '{');
    for (int f = 0; f < SYNTH_FACTORS; f++) json_put_number(&w, synth_factors[f].name, synth_factors[f].named);
    json_end(&w);
    w.lines = 2;
    json_begin(&w, "favourites", '{');
    for (int f = 0; f < SYNTH_FACTORS; f++) put_favourites(&w, (synth_factor)f);
    json_end(&w);
    json_begin(&w, "held_out", '{');
    put_held_out(&w, SYNTH_COLOUR);
    put_held_out(&w, SYNTH_BACKGROUND);
    json_end(&w);
    json_end(&w);
    json_out_append(&w, s);
}
