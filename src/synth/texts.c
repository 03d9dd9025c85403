/* The ground truth, the prompts and the description of a set, as text. */
#include "synth/write.h"

#include <string.h>

#include "core/json.h"

static const char *value_name(int factor, int value) { return synth_factors[factor].value[value].name; }

void synth_put_factor_header(sbuf *s)
{
    sbuf_puts(s, "filepath\tsplit");
    for (int f = 0; f < SYNTH_FACTORS; f++) sbuf_printf(s, "\t%s", synth_factors[f].name);
    sbuf_putc(s, '\n');
}

void synth_put_naming_header(sbuf *s)
{
    sbuf_puts(s, "filepath\tsplit\theld_out");
    for (int f = 0; f < SYNTH_FACTORS; f++) sbuf_printf(s, "\t%s", synth_factors[f].name);
    sbuf_putc(s, '\n');
}

void synth_put_factor_row(sbuf *s, const char *file, const char *split, const synth_scene *scene)
{
    sbuf_printf(s, "%s\t%s", file, split);
    for (int f = 0; f < SYNTH_FACTORS; f++) sbuf_printf(s, "\t%s", value_name(f, scene->value[f]));
    sbuf_putc(s, '\n');
}

void synth_put_naming_row(sbuf *s, const char *file, const char *split, const synth_scene *scene)
{
    sbuf_printf(s, "%s\t%s\t%d", file, split, scene->held_out);
    for (int f = 0; f < SYNTH_FACTORS; f++) sbuf_printf(s, "\t%d", scene->named[f]);
    sbuf_putc(s, '\n');
}

void synth_put_truth(sbuf *s, const synth_scene *scene)
{
    const char *comma = "";
    sbuf_putc(s, '{');
    for (int f = 0; f < SYNTH_FACTORS; f++)
        sbuf_printf(s, "\"%s\": \"%s\", ", synth_factors[f].name, value_name(f, scene->value[f]));
    sbuf_puts(s, "\"named\": [");
    for (int f = 0; f < SYNTH_FACTORS; f++) {
        if (!scene->named[f]) continue;
        sbuf_printf(s, "%s\"%s\"", comma, synth_factors[f].name);
        comma = ", ";
    }
    sbuf_printf(s, "], \"held_out\": %s}\n", scene->held_out ? "true" : "false");
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
static void put_template(sbuf *s, const char *t, bool first)
{
    int objects = strstr(t, "<object") ? SYNTH_OBJECTS : 1, colours = strstr(t, "<colour>") ? SYNTH_COLOURS : 1,
        places = strstr(t, "<place>") ? SYNTH_BACKGROUNDS : 1, at[3];
    for (at[0] = 0; at[0] < objects; at[0]++)
        for (at[1] = 0; at[1] < colours; at[1]++)
            for (at[2] = 0; at[2] < places; at[2]++) {
                sbuf_puts(s, first ? "\"" : ", \"");
                put_filled(s, t, at);
                sbuf_putc(s, '"');
                first = false;
            }
}

void synth_put_prompts(sbuf *s)
{
    sbuf_puts(s, "{\n");
    for (int f = 0; f < SYNTH_FACTORS; f++) {
        const synth_factor_row *row = &synth_factors[f];
        sbuf_printf(s, "  \"%s\": {\n    \"classes\": [", row->name);
        for (int v = 0; v < row->count; v++) sbuf_printf(s, "%s\"%s\"", v ? ", " : "", row->value[v].name);
        sbuf_puts(s, "],\n    \"templates\": [");
        for (int t = 0; t < SYNTH_MAX_TEMPLATES && row->template_[t]; t++) put_template(s, row->template_[t], t == 0);
        sbuf_printf(s, "],\n    \"metric\": \"accuracy\"\n  }%s\n", f + 1 < SYNTH_FACTORS ? "," : "");
    }
    sbuf_puts(s, "}\n");
}

/* ---- the mark ------------------------------------------------------------------------------------ */

static void put_named(sbuf *s)
{
    sbuf_puts(s, "  \"named\": {");
    for (int f = 0; f < SYNTH_FACTORS; f++) {
        sbuf_printf(s, "%s\"%s\": ", f ? ", " : "", synth_factors[f].name);
        json_put_number(s, synth_factors[f].named);
    }
    sbuf_puts(s, "},\n");
}

static void put_favourites(sbuf *s, synth_factor f)
{
    synth_factor cause = synth_cause(f);
    sbuf_printf(s, "    \"%s\": {\"of\": \"%s\"", synth_factors[f].name, synth_factors[cause].name);
    for (int v = 0; v < synth_factors[cause].count; v++)
        sbuf_printf(s, ", \"%s\": \"%s\"", value_name((int)cause, v), value_name((int)f, synth_favourite(f, v)));
    sbuf_puts(s, "}");
}

static void put_held_out(sbuf *s, synth_factor f)
{
    sbuf_printf(s, "    \"%s\": {", synth_factors[f].name);
    for (int o = 0; o < SYNTH_OBJECTS; o++) {
        const char *comma = "";
        sbuf_printf(s, "%s\"%s\": [", o ? ", " : "", value_name(SYNTH_OBJECT, o));
        for (int v = 0; v < synth_factors[f].count; v++) {
            if (!synth_pair_held_out(f, o, v)) continue;
            sbuf_printf(s, "%s\"%s\"", comma, value_name((int)f, v));
            comma = ", ";
        }
        sbuf_putc(s, ']');
    }
    sbuf_putc(s, '}');
}

void synth_put_mark(sbuf *s, const cloob_synth_options *o)
{
    const char *comma = "";
    sbuf_printf(s, "{\n  \"cloob_synth\": 1,\n  \"seed\": %llu,\n  \"count\": %lld,\n  \"val_count\": %lld,\n",
                (unsigned long long)o->seed, (long long)o->count, (long long)synth_val_count(o));
    sbuf_printf(s, "  \"per_class\": %lld,\n  \"size\": %lld,\n  \"format\": \"%s\",\n  \"strength\": ",
                (long long)synth_per_class(o), (long long)o->size, o->format == CLOOB_SYNTH_CSV ? "csv" : "webdataset");
    json_put_number(s, o->strength);
    sbuf_puts(s, ",\n");
    put_named(s);
    sbuf_puts(s, "  \"favourites\": {\n");
    for (int f = 0; f < SYNTH_FACTORS; f++) {
        if (synth_cause((synth_factor)f) == SYNTH_FACTORS) continue;
        sbuf_puts(s, comma);
        put_favourites(s, (synth_factor)f);
        comma = ",\n";
    }
    sbuf_puts(s, "\n  },\n  \"held_out\": {\n");
    put_held_out(s, SYNTH_COLOUR);
    sbuf_puts(s, ",\n");
    put_held_out(s, SYNTH_BACKGROUND);
    sbuf_puts(s, "\n  }\n}\n");
}
