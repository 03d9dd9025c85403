/* The presets as a page of Markdown: docs/reference/presets.md is this output. */
#include <string.h>

#include "cli/commands.h"
#include "core/option.h"
#include "train/settings.h"

static const train_preset *find(const char *name)
{
    int64_t n;
    const train_preset *p = preset_table(&n);
    for (int64_t i = 0; i < n; i++)
        if (strcmp(p[i].name, name) == 0) return &p[i];
    return NULL;
}

/* The row of a setting in a preset or the preset it begins with; NULL: none. */
static const train_preset_row *row_of(const train_preset *p, const char *setting)
{
    int64_t n;
    const train_preset_row *row = preset_rows(&n);
    for (; p; p = p->like ? find(p->like) : NULL)
        for (int64_t i = 0; i < n; i++)
            if (strcmp(row[i].preset, p->name) == 0 && strcmp(row[i].setting, setting) == 0) return &row[i];
    return NULL;
}

static void put_flag(FILE *out, const char *setting, const char *value)
{
    bool off = strcmp(value, "False") == 0;
    fputs(off ? "`--no-" : "`--", out);
    for (; *setting; setting++) fputc(*setting == '_' ? '-' : *setting, out);
    if (!off && strcmp(value, "True") != 0) fprintf(out, " %s", value);
    fputc('`', out);
}

static void put_preset(FILE *out, const train_preset *p)
{
    int64_t n;
    const option_desc *option = train_option_table(&n);
    fprintf(out, "\n## %s\n\n%s%s.", p->name, strncmp(p->help, "the", 3) == 0 ? "T" : "",
            p->help + (strncmp(p->help, "the", 3) == 0));
    if (p->like) fprintf(out, " Begins with `%s`.", p->like);
    fprintf(out, "\n\n| source | the preset sets |\n|---|---|\n");
    for (int64_t i = 0; i < n; i++) {
        const train_preset_row *row = row_of(p, option[i].name);
        if (!row) continue;
        fprintf(out, "| %s | ", row->source);
        put_flag(out, row->setting, row->value);
        fputs(" |\n", out);
    }
}

void presets_write(FILE *out)
{
    int64_t n;
    const train_preset *p = preset_table(&n);
    fputs("# Presets\n\n"
          "`cloob train --preset NAME` sets what the tables below list; flags override them. `cloob help "
          "--presets` prints\n"
          "this page from the program's table.\n\n"
          "A preset names the batch of all ranks together: `mpirun -np 4 cloob train --preset cc` trains with 512 "
          "pairs a step,\n"
          "128 on each rank, and its log prints `batch 512 = 4 x 128`. `--batch-size` instead is per rank. A cycle of "
          "the learning\n"
          "rate lasts 7 epochs from the end of the warm-up on, however many epochs there are.\n\n"
          "What the paper does not give in numbers stays at the option's default (`cloob help train`): AdamW's beta1 "
          "0.9, beta2\n"
          "0.999 and eps 1e-8 for ResNets, crops of 90 to 100 % of the area, images of the model's own size. The paper "
          "chose its\n"
          "settings on about 15,000 held-out pairs of Conceptual Captions. Rows with OpenCLIP are that program's "
          "published\n"
          "settings.\n\n"
          "CLIP's presets have the schedule of CLOOB's, since the paper says that all experiments have it: cosine "
          "annealing with\n"
          "warm-up and hard restarts, 7 epochs a cycle. Its tables agree. With restarts, the table of schedulers has "
          "21.00 for CLIP on\n"
          "UCF101, 0.90 on Stanford Cars and 20.31 on ImageNet; Table 1 has 20.98, 0.91 and 20.33. Without restarts "
          "they are 19.05,\n"
          "1.29 and 20.19: that is `openclip-cc`.\n\n"
          "Vocabulary: the paper uses CLIP's 49,408 tokens. Without `--vocab` the program looks for CLIP's merges "
          "where Python's\n"
          "packages open_clip and clip, `~/.cache/clip` and Hugging Face's cache keep them, and names the file. Where "
          "there are none, or with\n"
          "`--vocab-size`, a vocabulary of up to 8,192 tokens (or that size) is trained on the captions, and the "
          "program says so.\n"
          "\n"
          "Restarts: with about 5,644 steps an epoch on Conceptual Captions the warm-up of 20,000 steps ends in the "
          "fourth epoch, so cycles do\n"
          "not end with epochs. After 31 epochs the rate is 1.5 % of its peak, after 128 epochs, in the middle of a "
          "cycle, 11.5 %. The\n"
          "authors' program divides the steps between the warm-up and the end of the run into equal cycles (70 epochs "
          "in 10 cycles in\n"
          "its example): `--preset cc-128 --restart-cycles 18` does the same and ends at 0. With cycles of 7 epochs "
          "the schedule does not\n"
          "depend on the length of the run: epoch 31 of a run of 128 epochs is the model of a run of 31 epochs, byte "
          "for byte.\n"
          "`results.jsonl` marks the last epoch before each restart (`cycle_end`). `--lr-scheduler cosine` under a "
          "preset leaves restarts\n"
          "out.\n"
          "\n"
          "Cost and limits: the authors name about 11,000 GPU hours for all experiments of the paper. Models that are "
          "trained on captions\n"
          "from the web repeat their biases and gaps, and zero-shot accuracy on a benchmark does not show that a model "
          "is fit for a use.\n"
          "The paper compares ResNets on 3 and 15 million pairs; nothing here shows what happens at other sizes.\n",
          out);
    for (int64_t i = 0; i < n; i++) put_preset(out, &p[i]);
}
