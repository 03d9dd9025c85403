/* The ground truth, the prompts and the description of a set, as text. */
#include "data/synth_write.h"

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

void synth_put_prompts(sbuf *s)
{
    sbuf_puts(s, "{\n");
    for (int f = 0; f < SYNTH_FACTORS; f++) {
        const synth_factor_row *row = &synth_factors[f];
        sbuf_printf(s, "  \"%s\": {\n    \"classes\": [", row->name);
        for (int v = 0; v < row->count; v++) sbuf_printf(s, "%s\"%s\"", v ? ", " : "", row->value[v].name);
        sbuf_puts(s, "],\n    \"templates\": [");
        for (int t = 0; t < SYNTH_MAX_TEMPLATES && row->template_[t]; t++)
            sbuf_printf(s, "%s\"%s\"", t ? ", " : "", row->template_[t]);
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
        sbuf_printf(s, ", \"%s\": \"%s\"", value_name((int)cause, v),
                    value_name((int)f, synth_favourite(f, v)));
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
    sbuf_printf(s,
                "{\n  \"cloob_synth\": 1,\n  \"seed\": %llu,\n  \"count\": %lld,\n  \"val_count\": %lld,\n",
                (unsigned long long)o->seed, (long long)o->count, (long long)synth_val_count(o));
    sbuf_printf(s, "  \"per_class\": %lld,\n  \"size\": %lld,\n  \"format\": \"%s\",\n  \"strength\": ",
                (long long)synth_per_class(o), (long long)o->size,
                o->format == CLOOB_SYNTH_CSV ? "csv" : "webdataset");
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
