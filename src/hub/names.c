/* Parses model names into a Hugging Face repository and a revision. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "hub/hub.h"

/* ---- tables -------------------------------------------------------------------------------------- */

static const hub_model models[] = {
    { "laion-vit-b-32", "laion/CLIP-ViT-B-32-laion2B-s34B-b79K", 605, "a first model: photo search on a CPU", "MIT" },
    { "clip-vit-b-32", "openai/clip-vit-base-patch32", 605, "comparable with OpenAI's CLIP", "MIT" },
    { "datacomp-vit-b-16", "laion/CLIP-ViT-B-16-DataComp.XL-s13B-b90K", 598, "more accurate, 4 times slower", "MIT" },
    { "siglip2-b-16", "google/siglip2-base-patch16-224", 1501, "search in many languages", "Apache-2.0" },
    { "clip-vit-l-14", "openai/clip-vit-large-patch14", 1710, "comparable with OpenAI's CLIP", "MIT" },
    { "datacomp-vit-l-14", "laion/CLIP-ViT-L-14-DataComp.XL-s13B-b90K", 1710, "more accurate still; a GPU helps",
      "MIT" },
    { "siglip-so400m", "google/siglip-so400m-patch14-384", 3512, "fine detail, text in photos; a GPU", "Apache-2.0" },
    { "laion-vit-h-14", "laion/CLIP-ViT-H-14-laion2B-s32B-b79K", 3944, "used by image generators; a GPU", "MIT" },
    { "siglip2-so400m", "google/siglip2-so400m-patch14-384", 4544, "the same in many languages; a GPU", "Apache-2.0" },
};

const hub_model *hub_models(int64_t *count)
{
    *count = sizeof models / sizeof *models;
    return models;
}

static const struct pretrained {
    const char *name, *repo; /* ARCHITECTURE/TAG */
    bool quick;
} table[] = {
#define ROW(name, repo)   { name, repo, false },
#define QUICK(name, repo) { name, repo, true },
#include "hub/open_clip.def"
};

/* ---- checks -------------------------------------------------------------------------------------- */

bool hub_is_hex(const char *text, size_t digits)
{
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

/* Whether text is a valid ORG or NAME of Hugging Face; both become part of paths and URLs. */
static bool is_part(const char *text, size_t n)
{
    if (!n || n > 96 || text[0] == '.' || text[0] == '-' || text[n - 1] == '.' || text[n - 1] == '-') return false;
    for (size_t i = 0; i < n; i++) {
        bool letter = (text[i] | 32) >= 'a' && (text[i] | 32) <= 'z', digit = text[i] >= '0' && text[i] <= '9';
        if (!letter && !digit && !strchr("._-", text[i])) return false;
        if (i && text[i] == text[i - 1] && strchr(".-", text[i])) return false; /* ".." and "--" */
    }
    return true;
}

bool hub_path_is_safe(const char *path)
{
    size_t n;
    if (strlen(path) > 255) return false;
    for (const char *at = path;; at += n + 1) {
        n = strcspn(at, "/");
        if (!n || (at[0] == '.' && (n == 1 || (n == 2 && at[1] == '.')))) return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)at[i] < 0x20 || at[i] == 0x7f || at[i] == '\\') return false;
        if (!at[n]) return true;
    }
}

/* ---- names --------------------------------------------------------------------------------------- */

static bool parse_repo(const char *text, hub_name *out)
{
    size_t n = strcspn(text, "@");
    const char *slash = memchr(text, '/', n), *revision = text[n] ? text + n + 1 : "main";
    if (!slash || n >= sizeof out->repo || strlen(revision) >= sizeof out->revision) return false;
    if (!is_part(text, (size_t)(slash - text)) || !is_part(slash + 1, (size_t)(text + n - slash - 1))) return false;
    if (!hub_path_is_safe(revision)) return false;
    *out = (hub_name){ 0 };
    memcpy(out->repo, text, n);
    snprintf(out->revision, sizeof out->revision, "%s", revision);
    return true;
}

/* Ignores the difference between "-" and "_" and case in tags: open_clip writes laion2b_s34b_b79k, immich
 * laion2b-s34b-b79k. */
static int tag_letter(char c) { return c == '-' ? '_' : tolower((unsigned char)c); }

static bool same_tag(const char *a, const char *b)
{
    for (; *a && tag_letter(*a) == tag_letter(*b); a++) b++;
    return !*a && !*b;
}

static bool same_architecture(const struct pretrained *p, const char *text, size_t n)
{
    static const char quick[] = "-quickgelu";
    size_t known = strcspn(p->name, "/");
    if (n < known || strncasecmp(p->name, text, known) != 0) return false;
    return n == known ||
           (p->quick && n == known + sizeof quick - 1 && strncasecmp(text + known, quick, n - known) == 0);
}

/* Sets the file name used by OpenAI's package in ~/.cache/clip: ViT-B-32.pt, ViT-L-14-336px.pt. */
static void put_clip_file(const char *name, hub_name *out)
{
    int n = (int)strcspn(name, "/");
    bool large = n > 4 && strncmp(name + n - 4, "-336", 4) == 0;
    if (strcmp(name + n, "/openai") == 0)
        snprintf(out->clip_file, sizeof out->clip_file, "%.*s%s.pt", n, name, large ? "px" : "");
}

static bool parse_pretrained(const char *text, hub_name *out)
{
    const char *mark = strstr(text, "__");
    if (!mark) mark = strchr(text, '/');
    if (!mark) return false;
    const char *tag = mark + (*mark == '/' ? 1 : 2);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *known = strchr(table[i].name, '/') + 1;
        if (!same_architecture(&table[i], text, (size_t)(mark - text)) || !same_tag(known, tag)) continue;
        *out = (hub_name){ .revision = "main" };
        snprintf(out->repo, sizeof out->repo, "%s", table[i].repo);
        put_clip_file(table[i].name, out);
        return true;
    }
    return false;
}

/* Among the models of the same architecture, the one whose tag has the longest common prefix with that in text; NULL if
 * the architecture is unknown. */
static const struct pretrained *nearest(const char *text)
{
    const char *mark = strstr(text, "__");
    size_t n = mark ? (size_t)(mark - text) : strcspn(text, "/"), most = 0;
    const char *tag = text + n + (mark ? 2 : text[n] == '/');
    const struct pretrained *best = NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *known = strchr(table[i].name, '/') + 1;
        size_t same = 0;
        if (!same_architecture(&table[i], text, n)) continue;
        while (tag[same] && tag_letter(tag[same]) == tag_letter(known[same])) same++;
        if (!best || same > most) best = &table[i], most = same;
    }
    return best;
}

void hub_name_hint(const char *text, char *out, size_t size)
{
    static const char *const refused[][2] = { { "coca_", "CoCa" },
                                              { "ViTamin", "ViTamin" },
                                              { "nllb-clip", "NLLB-CLIP" } };
    static const char *const sites[] = { "https://huggingface.co/", "huggingface.co/", "" };
    hub_name n;
    const struct pretrained *known = nearest(text);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strncasecmp(text, refused[i][0], strlen(refused[i][0])) == 0) {
            snprintf(out, size, "%s models are not supported", refused[i][1]);
            return;
        }
    for (size_t i = 0; i < sizeof sites / sizeof *sites && !known; i++) {
        size_t k = strlen(sites[i]);
        if (strncmp(text, sites[i], k) != 0 || !parse_repo(text + k, &n)) continue;
        snprintf(out, size, "use hf:%s for the model on Hugging Face", text + k);
        return;
    }
    if (known) snprintf(out, size, "the most similar name is %s", known->name);
    else snprintf(out, size, "use hf:ORG/NAME for any model on Hugging Face");
}

bool hub_name_parse(const char *text, hub_name *out)
{
    static const char *const prefixes[] = { "hf:", "hf-hub:" };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(text, prefixes[i], strlen(prefixes[i])) == 0) return parse_repo(text + strlen(prefixes[i]), out);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcasecmp(text, models[i].name) == 0) return parse_repo(models[i].repo, out);
    return parse_pretrained(text, out);
}

bool hub_name_is_meant(const char *text)
{
    hub_name n;
    return strncmp(text, "hf:", 3) == 0 || strncmp(text, "hf-hub:", 7) == 0 || hub_name_parse(text, &n);
}
