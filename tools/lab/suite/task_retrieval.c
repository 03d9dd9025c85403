/* Zero-shot retrieval: every caption of every image, both ways. */
#include "lab/suite/impl.h"
#include "cloob/eval.h"
#include "infer/embed_source.h"

static void put_scores(bench *b, const cloob_retrieval_side *images, const cloob_retrieval_side *texts)
{
    bench_score(b, "image_retrieval_recall@5", images->recall5);
    bench_score(b, "text_retrieval_recall@5", texts->recall5);
    bench_score(b, "image_retrieval_recall@1", images->recall1);
    bench_score(b, "text_retrieval_recall@1", texts->recall1);
    bench_score(b, "image_retrieval_recall@10", images->recall10);
    bench_score(b, "text_retrieval_recall@10", texts->recall10);
    bench_score(b, "mean_recall@1", (images->recall1 + texts->recall1) / 2);
}

cloob_status task_retrieval(cloob_ctx *ctx, bench *b)
{
    bench_features f;
    cloob_retrieval r;
    CLOOB_TRY(features_make(ctx, b, b->o.split, NULL, &f));
    const embed_result *e = &f.e;
    b->out->n = e->rows, b->out->bad = e->bad;
    cloob_matrix images = { e->image, CLOOB_F32, e->rows, e->image_width, b->folder },
                 texts = { e->text, CLOOB_F32, e->text_rows, e->text_width, b->folder };
    cloob_retrieve_options how = { .device = b->o.device, .text_image = e->text_image };
    cloob_status status =
        e->text ? cloob_retrieve(ctx, &r, &images, &texts, &how)
                : ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: neither classnames.txt nor captions (txt members)", b->folder);
    if (status == CLOOB_OK) put_scores(b, &r.text_to_image, &r.image_to_text);
    features_release(&f);
    return status;
}
