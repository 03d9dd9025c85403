/* cloob info device: describes devices, parts of this build and the cache folder. cloob doctor prints the same and then
 * runs its tests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/limits.h"
#include "core/shared_object.h"
#include "io/fileset.h"
#include "lab/bench/bench.h"

static const char *device_name(int i, char out[16])
{
    if (i) snprintf(out, 16, "cuda:%d", i - 1);
    else snprintf(out, 16, "cpu");
    return out;
}

/* ---- text -------------------------------------------------------------------------------------------- */

static void print_device(int i, const device_facts *f)
{
    char name[16];
    printf("  %-10s %s", device_name(i, name), f->name);
    if (f->total_bytes)
        printf(", %.1f GiB free of %.1f", (double)f->free_bytes / 1073741824.0, (double)f->total_bytes / 1073741824.0);
    printf("\n");
    if (f->runs[0]) printf("  %-10s %s\n", "", f->runs);
    printf("  %-10s --precision auto is %s: %s\n", "", f->automatic, f->why);
    if (!f->decoder[0]) return;
    char decoder[512];
    opt_with_flags(f->decoder, decoder, sizeof decoder);
    printf("  %-10s JPEG images: %s\n", "", decoder);
}

static void print_why_no_gpu(cloob_ctx *ctx)
{
    device_facts none;
    char why[512];
    if (device_count() > 1 || device_describe(ctx, 1, &none) == CLOOB_OK) return;
    opt_with_flags(cloob_error(ctx), why, sizeof why);
    printf("  no GPU     %s\n", why);
}

/* Lists the optional libraries, available ones first. Each is loaded to check that it has the required functions. */
static void print_libraries(void)
{
    printf("\nlibraries loaded on first use\n");
    for (shared_object *o = shared_object_first(); o; o = o->next)
        if (shared_object_is_there(o)) printf("  %-19s yes\n", o->loaded);
    for (shared_object *o = shared_object_first(); o; o = o->next) {
        char remedy[512];
        if (shared_object_is_there(o)) continue;
        opt_with_flags(o->install, remedy, sizeof remedy);
        printf("  %-19s no   install %s\n", o->file[0], remedy);
    }
}

void machine_text(cloob_ctx *ctx)
{
    int64_t n;
    const build_part *part = build_parts(&n);
    char *cache = cache_folder();
    printf("cloob %s\n\ndevices\n", cloob_version());
    for (int i = 0; i < device_count(); i++) {
        device_facts f;
        if (device_describe(ctx, i, &f) == CLOOB_OK) print_device(i, &f);
        else printf("  device %d: %s\n", i, cloob_error(ctx));
    }
    print_why_no_gpu(ctx);
    printf("  %ld cores; kernels for %s\n", sysconf(_SC_NPROCESSORS_ONLN), instruction_sets());
    printf("\ncache      %s\n", cache ? cache : "none: set CLOOB_CACHE or HOME");
    free(cache);
    printf("\nparts of this build\n");
    for (int64_t i = 0; i < n; i++)
        if (part[i].present) printf("  %-14s yes  %s\n", part[i].name, part[i].use);
    for (int64_t i = 0; i < n; i++)
        if (!part[i].present) printf("  %-14s no   without it: no %s\n", part[i].name, part[i].use);
    print_libraries();
}

/* ---- JSON -------------------------------------------------------------------------------------------- */

void machine_json(cloob_ctx *ctx)
{
    int64_t n;
    const build_part *part = build_parts(&n);
    char *cache = cache_folder(), name[16];
    json_out_members(J_TEXT("version", cloob_version()), J_TEXT("instruction_sets", instruction_sets()),
                     J_INT("cores", sysconf(_SC_NPROCESSORS_ONLN)), J_INT("gpus", device_count() - 1),
                     J_TEXT("cache", cache ? cache : ""));
    free(cache);
    json_out_open("devices", '[');
    for (int i = 0; i < device_count(); i++) {
        device_facts f = { .name = "" };
        device_describe(ctx, i, &f);
        json_out_object(NULL, J_TEXT("device", device_name(i, name)), J_OF(&f, name), J_OF(&f, runs),
                        J_TEXT("precision_auto", f.automatic), J_OF(&f, total_bytes), J_OF(&f, free_bytes));
    }
    json_out_close();
    json_out_open("parts", '{');
    for (int64_t i = 0; i < n; i++) json_out_bool(part[i].name, part[i].present);
    json_out_close();
    json_out_open("libraries", '{');
    for (shared_object *o = shared_object_first(); o; o = o->next) json_out_bool(o->file[0], shared_object_is_there(o));
    json_out_close();
}

static bool matches(const char *what) { return strcmp(what, "device") == 0 && access(what, F_OK) != 0; }

static int describe(const command *self, cloob_ctx *ctx, const char *what, const info_options *o)
{
    (void)self, (void)what, (void)o;
    if (common.json) json_out_open(NULL, '{'), machine_json(ctx), json_out_close();
    else machine_text(ctx);
    return 0;
}

const info_kind info_device = { matches, describe };
