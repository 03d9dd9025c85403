/* Implementation of tokenizers, for the files of this folder and their tests.
 *
 * CLIP's BPE, SentencePiece models and the models of a tokenizer.json are configurations of one tokenizer. A text is
 * cleaned, split at added tokens, normalised and split into words by the steps, and each word is split into pieces of
 * the vocabulary. A row consists of a prefix, the ids, a suffix and padding.
 *
 *     tokenizer.c         texts to ids and rows, ids to texts
 *     steps.c             normalizers and pre-tokenizers
 *     pieces.c            the vocabulary: unigram, BPE and WordPiece
 *     tokenizer_merges.c  merges files, CLIP's and cloob's
 *     pieces_file.c       sentencepiece's .model, and its form in checkpoints
 *     tokenizer_json.c    tokenizer.json, and its form in checkpoints
 *     tokenizer_folder.c  a folder's tokenizer, CLIP's merges on this machine, files for transformers
 *     tokenizer_train.c   learns merges */
#ifndef DATA_TEXT_TOKENIZER_IMPL_H
#define DATA_TEXT_TOKENIZER_IMPL_H

#include "core/arena.h"
#include "core/ctx.h"
#include "core/hash.h"
#include "core/json.h"
#include "data/text/clean.h"
#include "data/text/tokenizer.h"

#define META "\xe2\x96\x81" /* U+2581, which represents a space in pieces */

enum {
    META_BYTES = 3,
    BYTES = 256,                   /* ids of merges: 0 .. 255 are bytes, 256 .. 511 bytes that end a word */
    FIRST_MERGE = 2 * BYTES,       /* then one id per merge, then start and end of text */
    CLIP_MERGES = 49152 - 256 - 2, /* number of lines of OpenAI's merges file that CLIP uses */
    VOCAB_LIMIT = 1 << 20          /* limit on ids, above any known vocabulary */
};

/* ---- the vocabulary (pieces.c) ----------------------------------------------------------------------------------- */

typedef enum piece_type {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN,
    PIECE_CONTROL,
    PIECE_USER,
    PIECE_UNUSED,
    PIECE_BYTE
} piece_type;

typedef struct piece_row {
    uint32_t at, bytes; /* range in pieces.text */
    float score;
    uint8_t type;
    bool whole; /* merging its characters gives this piece, so a word equal to it needs no merging */
} piece_row;

/* How a word is split into pieces. UNIGRAM: the path with the highest sum of scores. BPE: merges the adjacent symbols
 * whose concatenation has the highest score. MERGES: merges by rank in a list. WORDS: longest piece first; pieces
 * inside a word start with "##". */
typedef enum piece_model { PIECES_UNIGRAM, PIECES_BPE, PIECES_MERGES, PIECES_WORDS } piece_model;

typedef struct pieces {
    piece_model model;
    bool byte_fallback; /* text that is not in the vocabulary becomes its bytes; otherwise the unknown piece */
    bool word_ends;     /* PIECES_MERGES: the last character of a word includes "</w>" */
    int32_t word_limit; /* PIECES_WORDS: words of more characters are unknown */
    bool no_unknown;    /* the vocabulary may lack an unknown piece; unknown text is then dropped */
    bool user_pieces;   /* the vocabulary has PIECE_USER pieces */
    /* Follow the tokenizers library: scores are summed in double, grapheme clusters are mapped as a whole. */
    bool like_tokenizers;
    /* SentencePiece's normalisation of whole texts, if `sentencepiece` is set */
    bool sentencepiece;
    bool prefix;      /* add a space before the text */
    bool fold_spaces; /* fold runs of spaces, remove them at both ends */
    int32_t unknown, count;
    piece_row *piece;
    sbuf text;
    sbuf charsmap; /* sentencepiece's character map: a double-array trie and the replacement strings; empty: no
                    * mapping */
    float min_score, max_score;
    hash_map index;  /* hash of a piece to its id; see index_piece in pieces.c */
    hash_map merges; /* PIECES_MERGES: two ids to rank and id of their merge */
    int32_t byte_id[BYTES];
} pieces;

/* Adds a piece, whose id is the number of pieces before it. False: out of memory. */
bool pieces_add(pieces *p, const char *text, size_t bytes, float score, piece_type type);
/* Call after the last piece: builds the tables and finds special ids. Fails if the vocabulary is not usable. */
cloob_status pieces_finish(cloob_ctx *ctx, pieces *p, const char *name);
void pieces_release(pieces *p);
/* For PIECES_MERGES, call before the first piece: reserves space for n pieces and merges. Pieces are then indexed as
 * they are added. False: out of memory. */
bool pieces_reserve(pieces *p, int64_t n);
/* Adds a merge of two ids with its rank. False: out of memory. */
bool pieces_add_pair(pieces *p, int32_t left, int32_t right, int32_t rank, int32_t id);
/* Id of a piece; below 0 if there is none. */
int32_t pieces_find(const pieces *p, const char *text, size_t bytes);

/* Appends the ids (int32_t) of one word without normalising it. Takes nearly linear time. */
cloob_status pieces_cut(cloob_ctx *ctx, const pieces *p, const char *word, size_t bytes, sbuf *ids);
/* Appends the ids of a text as libsentencepiece does: normalised by the character map, spaces as U+2581. behind: as in
 * SiglipTokenizer of transformers 5, which encodes "<unk>" before every text and drops its pieces: the text gets no
 * leading space, and sums of scores start with those of the dropped pieces, which decides between equal paths. */
cloob_status pieces_encode(cloob_ctx *ctx, const pieces *p, const char *text, size_t bytes, bool behind, sbuf *ids);
/* Appends the text as mapped by the character map, per grapheme cluster, as in the tokenizers library. */
void pieces_map(const pieces *p, const char *text, size_t bytes, sbuf *out);
/* Appends the text of one id of a SentencePiece vocabulary. */
void pieces_put(const pieces *p, int32_t id, sbuf *out);

/* ---- the tokenizer ------------------------------------------------------------------------------------ */

typedef enum step_kind {
    STEP_NFC,
    STEP_NFD,
    STEP_NFKC,
    STEP_NFKD,
    STEP_LOWER,
    STEP_STRIP,
    STEP_ACCENTS, /* removes marks (Mn) */
    STEP_REPLACE,
    STEP_REPLACE_SPACES, /* replaces runs of white space, or of at least `least` spaces */
    STEP_PREPEND,
    STEP_CHARSMAP,
    STEP_BERT_CLEAN,
    STEP_BERT_CHINESE,
    STEP_SIGLIP,       /* lower-cases the text, removes ASCII punctuation and folds spaces */
    STEP_SPLIT_SPACES, /* this and the following are pre-tokenizers */
    STEP_SPLIT_METASPACE,
    STEP_SPLIT_BERT,
    STEP_SPLIT_BYTES,
    STEP_SPLIT_CLIP, /* CLIP's words; left: as in transformers, else as in open_clip */
    STEP_SPLIT_AFTER_SPACE
} step_kind;

typedef struct step {
    step_kind kind;
    bool left, right; /* STRIP: which ends; BYTES: left adds a leading space, right splits by the regular expression */
    bool first;       /* METASPACE: add U+2581 only before the first word of a text; left: add it at all */
    int64_t least;
    const char *from, *to; /* in the tokenizer's arena */
} step;

typedef struct added_token {
    const char *text; /* in the tokenizer's arena, or static */
    size_t bytes;
    int32_t id;
    bool lstrip, rstrip, normalized, single_word;
} added_token;

/* Cleaning of a text before all steps. The first four values are stored in files. */
typedef enum preparation {
    PREPARE_NOTHING, /* replace invalid UTF-8 by U+FFFD */
    PREPARE_WHITESPACE,
    PREPARE_LOWER,
    PREPARE_CANONICAL, /* as open_clip for SigLIP: "_" becomes a space, no punctuation, lower case, single spaces */
    PREPARE_WORDS,     /* as LOWER, for steps that ignore the amount of white space */
    PREPARE_SIGLIP     /* U+2581 at the start, and only there */
} preparation;

/* The source of the tokenizer, which determines how it is stored. */
typedef enum tokenizer_form { FORM_MERGES, FORM_PIECES, FORM_JSON } tokenizer_form;

enum { TOKENIZER_STEPS = 24, TOKENIZER_SPECIALS = 4 };

struct cloob_tokenizer {
    tokenizer_form form;
    pieces p;
    clean_mode clean; /* used by `prepare` */
    preparation prepare;
    step step[TOKENIZER_STEPS]; /* normalizers first, then pre-tokenizers */
    int steps, normalizers;
    added_token *added;
    int64_t added_count;
    int32_t prefix[TOKENIZER_SPECIALS], suffix[TOKENIZER_SPECIALS]; /* ids before and after every text */
    int prefixes, suffixes;
    int32_t pad;
    bool pad_left;
    int32_t strip_sep; /* replaced by 0 in rows (open_clip's strip_sep_token); below 0: none */
    bool pad_special;  /* merges: the padding's text is a special token, as in transformers */
    bool smaller;      /* the model's vocabulary is larger than the tokenizer's, which its folder allows */
    sbuf source;       /* the lines of a merges file, or the tokenizer.json without white space */
    char pad_name[2];
    char class_name[48]; /* tokenizer_class of tokenizer_config.json; "": none */
    char pad_text[32];   /* as in tokenizer_config.json */
    arena a;
};

cloob_status tokenizer_create(cloob_ctx *ctx, tokenizer_form form, tokenizer **out);
/* Closes *t and sets it to NULL unless status is CLOOB_OK; returns status. */
cloob_status tokenizer_or_close(cloob_status status, tokenizer **t);

/* ---- steps.c ------------------------------------------------------------------------------------------ */

/* Adds a step; false if there are too many. */
bool steps_add(tokenizer *t, step s);
void steps_normalise(const tokenizer *t, sbuf *text);
/* State of the encoding of one text; ids are appended. */
typedef struct encoder {
    cloob_ctx *ctx;
    const tokenizer *t;
    sbuf *ids;
} encoder;

/* Splits normalised text into words and appends their ids. first: the text is at the start of the input. */
cloob_status steps_cut(const encoder *e, const char *text, size_t bytes, bool first);

/* Unicode white space as in Rust: without U+001C .. U+001F. */
bool steps_is_space(uint32_t c);
/* The code point at text[0], and its length in bytes; text must be valid UTF-8. */
uint32_t steps_code_at(const char *text, size_t n, size_t *used);

/* The character of GPT-2's byte-level encoding for a byte: printable bytes are themselves, the others follow from
 * U+0100. Writes UTF-8, at most two bytes; returns the length. */
int byte_spell(unsigned char byte, char out[2]);
/* Appends the bytes encoded by the byte-level characters of a text; other characters are dropped. */
void byte_unspell(const char *text, size_t n, sbuf *out);

typedef enum word_kind { WORD_PLAIN, WORD_START, WORD_END } word_kind;

typedef struct clip_word {
    const char *at;
    size_t bytes;
    word_kind kind; /* WORD_START, WORD_END: the text of a special token */
} clip_word;

/* Reads the next word of cleaned text at *pos by CLIP's rule; false at the end. hf: by transformers' regular
 * expression, else by open_clip's; only the latter has <start_of_text> and <end_of_text>. */
bool words_next(bool hf, const char *text, size_t bytes, size_t *pos, clip_word *w);

/* ---- tokenizer_merges.c ------------------------------------------------------------------------------- */

/* Building a tokenizer from merges: merges_begin creates one for at most `most` merges, with the ids of the bytes;
 * merges_add adds a merge of two ids and returns the new id; merges_end completes it. Ids are those described in
 * tokenizer.h. */
cloob_status merges_begin(cloob_ctx *ctx, int64_t most, tokenizer **out);
cloob_status merges_add(cloob_ctx *ctx, tokenizer *t, int32_t left, int32_t right, int32_t *id);
cloob_status merges_end(cloob_ctx *ctx, tokenizer *t);
/* Sets the steps according to clean and pad. */
void merges_set_steps(tokenizer *t);
cloob_status merges_read(cloob_ctx *ctx, const char *text, size_t size, const char *name, tokenizer **out);
void merges_save(const tokenizer *t, sbuf *out);

/* ---- pieces_file.c ------------------------------------------------------------------------------------ */

/* Whether the bytes are a .model file; whether a text is cloob's text form. */
bool pieces_is_model(const void *data, size_t size);
bool pieces_is_text(const char *text, size_t size);
cloob_status pieces_read_model(cloob_ctx *ctx, const void *data, size_t size, const char *name, tokenizer **out);
cloob_status pieces_read_text(cloob_ctx *ctx, const char *text, size_t size, const char *name, tokenizer **out);
/* Cleans as transformers' SiglipTokenizer instead of as open_clip. */
cloob_status pieces_set_siglip(cloob_ctx *ctx, tokenizer *t);
/* Makes rows as rinna's tokenize(): lower case, [CLS] at the start, no end token, padded with [PAD]. */
cloob_status pieces_set_rinna(cloob_ctx *ctx, tokenizer *t, const char *name);
void pieces_save(const tokenizer *t, sbuf *out);
void pieces_save_model(const tokenizer *t, sbuf *out); /* appends the bytes of a .model file */

/* ---- tokenizer_json.c --------------------------------------------------------------------------------- */

/* Settings of a folder other than tokenizer.json; NULL and 0: not specified. */
typedef struct tokenizer_config {
    const char *class_name, *pad, *bos, *eos;
    int add_bos, add_eos; /* 1: true, -1: false */
    bool pad_left, pad_side;
    preparation prepare;
    bool strip_sep;
} tokenizer_config;

/* Reads the text of a tokenizer.json, CLIP's included. config may be NULL. */
cloob_status tokenizer_read_json(cloob_ctx *ctx, const char *text, size_t size, const char *name,
                                 const tokenizer_config *config, tokenizer **out);
/* The form stored in checkpoints, and whether a text is in this form. */
bool json_form_is_text(const char *text, size_t size);
cloob_status json_form_read(cloob_ctx *ctx, const char *text, size_t size, const char *name, tokenizer **out);
void json_form_save(const tokenizer *t, sbuf *out);

/* Converts the files of older folders to the text of a tokenizer.json: WordPiece's vocab.txt; vocab.json and merges.txt
 * of RoBERTa or CLIP. */
void json_from_vocab_txt(const char *vocab, size_t size, bool lower, sbuf *json_text);
void json_from_merges(bool clip, const char *vocab, size_t vocab_size, const char *merges, size_t merges_size,
                      sbuf *json_text);

#endif
