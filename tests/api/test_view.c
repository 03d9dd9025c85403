/* Views through the public header. */
#include "check.h"

#include "cloob/cloob.h"

#define REF TESTS_DIR "/ref/images/"

static cloob_ctx *ctx;

static cloob_status view(const cloob_view_options *o, cloob_image *p)
{
    return cloob_view_file(ctx, REF "rgb.png", o, p);
}

static void same_seed_same_view(void)
{
    cloob_view_options o;
    cloob_image a, b, c;
    cloob_view_options_init(&o, 21);
    o.kind = CLOOB_VIEW_TRAIN;
    o.aug = (const char *const[]){ "scale=0.2,0.5", "color_jitter=0.4,0.4,0.4,0.1", NULL };
    cloob_status s = view(&o, &a);
    if (s == CLOOB_ERR_UNSUPPORTED) SKIP("no PNG in this build");
    CHECK_OK(ctx, s);
    CHECK_OK(ctx, view(&o, &b));
    o.seed = 1;
    CHECK_OK(ctx, view(&o, &c));
    CHECK(a.width == 21 && a.height == 21 && !memcmp(a.rgb, b.rgb, 21 * 21 * 3) && memcmp(a.rgb, c.rgb, 21 * 21 * 3));
    cloob_image_release(&a);
    cloob_image_release(&b);
    cloob_image_release(&c);
}

static void nonsense_is_refused(void)
{
    cloob_view_options o;
    cloob_image p;
    cloob_view_options_init(&o, 21);
    o.interpolation = "cubist";
    CHECK(view(&o, &p) == CLOOB_ERR_ARGUMENT && !p.rgb);
    cloob_view_options_init_size(&o, sizeof o); /* without a side, as another language calls it */
    CHECK(o.size == sizeof o && o.side == 0 && o.max_pixels > 0);
    cloob_view_options_init(&o, -1);
    CHECK(view(&o, &p) == CLOOB_ERR_ARGUMENT && !p.rgb);
    cloob_view_options_init(&o, 21);
    CHECK(cloob_view_file(ctx, REF "none.png", &o, &p) == CLOOB_ERR_IO && !p.rgb);
    CHECK(cloob_view_bytes(ctx, "hello", 5, "hello.png", &o, &p) == CLOOB_ERR_FORMAT);
    CHECK(strstr(cloob_error(ctx), "hello.png"));
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(same_seed_same_view);
    RUN(nonsense_is_refused);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
