/* Presets, from presets.def. */
#include <string.h>

#include "core/ctx.h"
#include "core/needs.h"
#include "core/sbuf.h"
#include "train/settings.h"

static const train_preset presets[] = {
#define PRESET(name, like, help) { #name, like, help },
#define SET(preset, setting, value, source)
#include "train/presets.def"
};

static const train_preset_row rows[] = {
#define PRESET(name, like, help)
#define SET(preset, setting, value, source) { #preset, #setting, value, source },
#include "train/presets.def"
};

const train_preset *preset_table(int64_t *count)
{
    if (count) *count = sizeof presets / sizeof *presets;
    return presets;
}

const train_preset_row *preset_rows(int64_t *count)
{
    if (count) *count = sizeof rows / sizeof *rows;
    return rows;
}

static const train_preset *find(const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(presets[i].name, name) == 0) return &presets[i];
    return NULL;
}

static cloob_status refuse(cloob_ctx *ctx, const char *name)
{
    sbuf names = { 0 };
    size_t n = sizeof presets / sizeof *presets;
    for (size_t i = 0; i < n; i++)
        sbuf_printf(&names, "%s%s", i == 0 ? "" : i + 1 == n ? " or " : ", ", presets[i].name);
    ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "preset %s: choose %s", name, names.data ? names.data : "another");
    sbuf_release(&names);
    return CLOOB_ERR_ARGUMENT;
}

cloob_status preset_apply(cloob_ctx *ctx, const char *name, cloob_train_options *o)
{
    API_NEEDS(ctx, name && o);
    const train_preset *p = find(name);
    int64_t n;
    const option_desc *table = train_option_table(&n);
    if (!p) return refuse(ctx, name);
    if (p->like) CLOOB_TRY(preset_apply(ctx, p->like, o));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].preset, name) != 0) continue;
        const option_desc *option = option_find(table, n, rows[i].setting);
        if (!option || !option_set(option, o, rows[i].value))
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "preset %s: %s cannot be %s", name, rows[i].setting,
                            rows[i].value);
    }
    return CLOOB_OK;
}
