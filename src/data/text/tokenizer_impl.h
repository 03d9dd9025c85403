/* The inside of a tokenizer, for the files of this folder and their tests.
 *
 * CLIP's BPE, SentencePiece's models and those of a tokenizer.json are configurations of one tokenizer. A text is
 * cleaned, split at the added tokens, normalised and split into words by the steps, and every word is cut into pieces
 * of the vocabulary; a row is the ids between a prefix and a suffix, and padding.
 *
 *     tokenizer.c         texts to ids and rows, ids to texts
 *     steps.c             normalizers and pre-tokenizers
 *     pieces.c            the vocabulary: unigram, BPE and WordPiece
 *     tokenizer_merges.c  merges files, CLIP's and cloob's
 *     pieces_file.c       sentencepiece's .model, and what checkpoints store of it
 *     tokenizer_json.c    tokenizer.json, and what checkpoints store of it
 *     tokenizer_folder.c  which file of a folder, CLIP's merges on this machine, files for transformers
 *     tokenizer_train.c   learns merges */
#ifndef DATA_TEXT_TOKENIZER_IMPL_H
#define DATA_TEXT_TOKENIZER_IMPL_H

#include "core/arena.h"
#include "core/ctx.h"
#include "core/hash.h"
#include "core/json.h"
#include "data/text/clean.h"
#include "data/text/tokenizer.h"

#define META "\xe2\x96\x81" /* U+2581, which stands for a space in pieces */

enum {
    META_BYTES = 3,
    BYTES = 256,                   /* ids 0 .. 255 of merges: a byte; 256 .. 511: a byte that ends a word */
    FIRST_MERGE = 2 * BYTES,       /* then one id per merge, then start and end of text */
    CLIP_MERGES = 49152 - 256 - 2, /* how many lines of its longer file CLIP uses */
    VOCAB_LIMIT = 1 << 20          /* more ids than any vocabulary has */
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
    uint32_t at, bytes; /* in pieces.text */
    float score;
    uint8_t type;
    bool whole; /* merging its characters gives this piece: the short cut for whole words */
} piece_row;

/* How a word is cut: along the path with the highest sum of scores; by merging the neighbours whose join has the
 * highest score; by a list of merges; or the longest piece first, where pieces inside a word begin with "##". */
typedef enum piece_model { PIECES_UNIGRAM, PIECES_BPE, PIECES_MERGES, PIECES_WORDS } piece_model;

typedef struct pieces {
    piece_model model;
    bool byte_fallback; /* what no piece covers is its bytes, else the unknown piece */
    bool word_ends;     /* PIECES_MERGES: the last character of a word ends in "</w>" */
    int32_t word_limit; /* PIECES_WORDS: characters of a word; longer ones are unknown */
    bool no_unknown;    /* there may be no unknown piece: what is unknown is dropped */
    bool user_pieces;   /* some pieces are PIECE_USER */
    bool wide;          /* as tokenizers does it: scores are summed in double, characters replaced as a whole */
    /* SentencePiece's own normalisation of whole texts, where `sentencepiece` is set */
    bool sentencepiece;
    bool prefix;      /* a space in front of every text */
    bool fold_spaces; /* none at the ends, one between words */
    int32_t unknown, count;
    piece_row *piece;
    sbuf text;
    sbuf charsmap; /* sentencepiece's: a double array and the strings it names; empty: characters stay */
    float min_score, max_score;
    hash_map index;  /* hashes of pieces to ids; see pieces.c */
    hash_map merges; /* two ids to the rank of their merge and the id it makes; PIECES_MERGES */
    int32_t byte_id[BYTES];
} pieces;

/* Adds a piece; pieces are added in the order of their ids. False: out of memory. */
bool pieces_add(pieces *p, const char *text, size_t bytes, float score, piece_type type);
/* After the last piece: tables, special ids. Refuses a vocabulary that cannot be used, by name. */
cloob_status pieces_finish(cloob_ctx *ctx, pieces *p, const char *name);
void pieces_release(pieces *p);
/* Space for n pieces and as many merges, before the first piece of PIECES_MERGES: pieces are found from then on. False:
 * out of memory. */
bool pieces_reserve(pieces *p, int64_t n);
/* A merge of two ids; rank: its line. False: out of memory. */
bool pieces_add_pair(pieces *p, int32_t left, int32_t right, int32_t rank, int32_t id);
/* The id of a piece; below 0: none. */
int32_t pieces_find(const pieces *p, const char *text, size_t bytes);

/* Appends the ids (int32_t) of one word, without normalising it. Time is near linear in the word. */
cloob_status pieces_cut(cloob_ctx *ctx, const pieces *p, const char *word, size_t bytes, sbuf *ids);
/* Appends the ids of a text as libsentencepiece does it: normalised by the character map, spaces as U+2581. behind: as
 * transformers 5's SiglipTokenizer does it, which encodes "<unk>" in front of every text and drops its pieces: no space
 * is put in front of the text, and sums of scores begin with those pieces, which decides between equal paths. */
cloob_status pieces_encode(cloob_ctx *ctx, const pieces *p, const char *text, size_t bytes, bool behind, sbuf *ids);
/* Appends a text as the character map has it, grapheme by grapheme as tokenizers does it. */
void pieces_map(const pieces *p, const char *text, size_t bytes, sbuf *out);
/* Appends the text of one id of SentencePiece's kind. */
void pieces_put(const pieces *p, int32_t id, sbuf *out);

/* ---- the tokenizer ------------------------------------------------------------------------------------ */

typedef enum step_kind {
    STEP_NFC,
    STEP_NFD,
    STEP_NFKC,
    STEP_NFKD,
    STEP_LOWER,
    STEP_STRIP,
    STEP_ACCENTS, /* marks (Mn) are dropped */
    STEP_REPLACE,
    STEP_REPLACE_SPACES, /* runs of white space, or of `least` and more spaces */
    STEP_PREPEND,
    STEP_CHARSMAP,
    STEP_BERT_CLEAN,
    STEP_BERT_CHINESE,
    STEP_SIGLIP,       /* lower case of the whole text, no ASCII punctuation, single spaces */
    STEP_SPLIT_SPACES, /* from here on: pre-tokenizers */
    STEP_SPLIT_METASPACE,
    STEP_SPLIT_BERT,
    STEP_SPLIT_BYTES,
    STEP_SPLIT_CLIP, /* CLIP's words; left: as transformers has them, else as open_clip */
    STEP_SPLIT_AFTER_SPACE
} step_kind;

typedef struct step {
    step_kind kind;
    bool left, right; /* STRIP; BYTES: left is a space in front, right the regular expression */
    bool first;       /* METASPACE: U+2581 only in front of the first word of a text; left: in front at all */
    int64_t least;
    const char *from, *to; /* in the tokenizer's arena */
} step;

typedef struct added_token {
    const char *text; /* in the tokenizer's arena, or constant */
    size_t bytes;
    int32_t id;
    bool lstrip, rstrip, normalized, single_word;
} added_token;

/* What is done to a text before all of it. The first four are stored by number. */
typedef enum preparation {
    PREPARE_NOTHING, /* bytes that are not UTF-8 become U+FFFD */
    PREPARE_WHITESPACE,
    PREPARE_LOWER,
    PREPARE_CANONICAL, /* open_clip's for SigLIP: "_" is a space, punctuation goes, lower case, one space */
    PREPARE_WORDS,     /* as LOWER, for steps that skip white space */
    PREPARE_SIGLIP     /* U+2581 in front and nowhere else */
} preparation;

/* What the tokenizer was read from, which is how it is stored. */
typedef enum tokenizer_form { FORM_MERGES, FORM_PIECES, FORM_JSON } tokenizer_form;

enum { TOKENIZER_STEPS = 24, TOKENIZER_SPECIALS = 4 };

struct cloob_tokenizer {
    tokenizer_form form;
    pieces p;
    clean_mode clean; /* for `prepare` */
    preparation prepare;
    step step[TOKENIZER_STEPS]; /* normalizers before pre-tokenizers */
    int steps, normalizers;
    added_token *added;
    int64_t added_count;
    int32_t prefix[TOKENIZER_SPECIALS], suffix[TOKENIZER_SPECIALS]; /* around every text */
    int prefixes, suffixes;
    int32_t pad;
    bool pad_left;
    int32_t strip_sep; /* this id becomes 0 in rows; below 0: none */
    bool pad_special;  /* merges: the padding's text is a special token, as transformers has it */
    bool smaller;      /* the model's vocabulary is larger, as its folder has it */
    sbuf source;       /* the lines of merges, or tokenizer.json without blanks */
    char pad_name[2];
    char class_name[48]; /* tokenizer_class of tokenizer_config.json, or "" */
    char pad_text[32];   /* as in tokenizer_config.json */
    arena a;
};

cloob_status tokenizer_create(cloob_ctx *ctx, tokenizer_form form, tokenizer **out);
/* Closes *t and sets it to NULL unless status is CLOOB_OK; returns status. */
cloob_status tokenizer_or_close(cloob_status status, tokenizer **t);

/* ---- steps.c ------------------------------------------------------------------------------------------ */

/* False: there are too many. */
bool steps_add(tokenizer *t, step s);
void steps_normalise(const tokenizer *t, sbuf *text);
/* One text on its way to ids, which are appended. */
typedef struct encoder {
    cloob_ctx *ctx;
    const tokenizer *t;
    sbuf *ids;
} encoder;

/* Cuts normalised text into words and pieces. first: it begins a text. */
cloob_status steps_cut(const encoder *e, const char *text, size_t bytes, bool first);

/* Unicode's white space, as Rust has it: without U+001C .. U+001F. */
bool steps_is_space(uint32_t c);
/* The code point at text[0] and its bytes; text is UTF-8. */
uint32_t steps_code_at(const char *text, size_t n, size_t *used);

/* GPT-2's characters for bytes: printable ones are themselves, the others follow from U+0100 on. UTF-8, two bytes at
 * most; returns how many. */
int byte_spell(unsigned char byte, char out[2]);
/* Appends the bytes that the characters of a text stand for; others are dropped. */
void byte_unspell(const char *text, size_t n, sbuf *out);

typedef enum word_kind { WORD_PLAIN, WORD_START, WORD_END } word_kind;

typedef struct clip_word {
    const char *at;
    size_t bytes;
    word_kind kind; /* WORD_START, WORD_END: the names of the two special tokens, spelled out */
} clip_word;

/* The next word of cleaned text from *pos on, by CLIP's rule; false at the end. hf: by the regular expression of
 * transformers, else of open_clip: only the latter has <start_of_text> and <end_of_text>. */
bool words_next(bool hf, const char *text, size_t bytes, size_t *pos, clip_word *w);

/* ---- tokenizer_merges.c ------------------------------------------------------------------------------- */

/* A tokenizer of at most `most` merges, with its bytes; a merge of two of its tokens, *id the new one; after the last
 * merge. Ids are those of the header tokenizer.h. */
cloob_status merges_begin(cloob_ctx *ctx, int64_t most, tokenizer **out);
cloob_status merges_add(cloob_ctx *ctx, tokenizer *t, int32_t left, int32_t right, int32_t *id);
cloob_status merges_end(cloob_ctx *ctx, tokenizer *t);
/* The steps that follow from clean and pad. */
void merges_set_steps(tokenizer *t);
cloob_status merges_read(cloob_ctx *ctx, const char *text, size_t size, const char *name, tokenizer **out);
void merges_save(const tokenizer *t, sbuf *out);

/* ---- pieces_file.c ------------------------------------------------------------------------------------ */

/* A .model file's bytes; cloob's text form. */
bool pieces_is_model(const void *data, size_t size);
bool pieces_is_text(const char *text, size_t size);
cloob_status pieces_read_model(cloob_ctx *ctx, const void *data, size_t size, const char *name, tokenizer **out);
cloob_status pieces_read_text(cloob_ctx *ctx, const char *text, size_t size, const char *name, tokenizer **out);
/* Cleaning as transformers' SiglipTokenizer has it, instead of open_clip's. */
cloob_status pieces_set_siglip(cloob_ctx *ctx, tokenizer *t);
/* Rows as rinna's tokenize() makes them: lower case, [CLS] in front, no end token, [PAD] behind. */
cloob_status pieces_set_rinna(cloob_ctx *ctx, tokenizer *t, const char *name);
void pieces_save(const tokenizer *t, sbuf *out);
void pieces_save_model(const tokenizer *t, sbuf *out); /* the bytes of a .model file */

/* ---- tokenizer_json.c --------------------------------------------------------------------------------- */

/* What a folder says besides tokenizer.json; NULL and 0 where it says nothing. */
typedef struct tokenizer_config {
    const char *class_name, *pad, *bos, *eos;
    int add_bos, add_eos; /* 1: yes, -1: no */
    bool pad_left, pad_side;
    preparation prepare;
    bool strip_sep;
} tokenizer_config;

/* text: of a tokenizer.json, CLIP's too. config may be NULL. */
cloob_status tokenizer_read_json(cloob_ctx *ctx, const char *text, size_t size, const char *name,
                                 const tokenizer_config *config, tokenizer **out);
/* The form that checkpoints store, and whether a text has it. */
bool json_form_is_text(const char *text, size_t size);
cloob_status json_form_read(cloob_ctx *ctx, const char *text, size_t size, const char *name, tokenizer **out);
void json_form_save(const tokenizer *t, sbuf *out);

/* tokenizer.json's text from the files of older folders: WordPiece's vocab.txt; vocab.json and merges.txt of RoBERTa,
 * or of CLIP. */
void json_from_vocab_txt(const char *vocab, size_t size, bool lower, sbuf *json_text);
void json_from_merges(bool clip, const char *vocab, size_t vocab_size, const char *merges, size_t merges_size,
                      sbuf *json_text);

#endif
