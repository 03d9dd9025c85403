/* Defaults that several structs share, and the macros that declare the members of option structs from the rows of the
 * *_options.def files in this folder. Each row has a setting's type, name, default, range and meaning. */
#ifndef CLOOB_OPTIONS_H
#define CLOOB_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* Defaults that several tables use. */
#define CLOOB_DEFAULT_INV_TAU        30  /* inverse temperature: the paper's for CLOOB */
#define CLOOB_DEFAULT_SCALE_HOPFIELD 8   /* inverse temperature of the Hopfield networks: the paper's for CC */
#define CLOOB_DEFAULT_LOGIT_BIAS     -10 /* SigLIP's initial bias of the logits */
#define CLOOB_DEFAULT_WD             0.2 /* weight decay: open_clip's; the paper's presets set 0.1 */
#define CLOOB_DEFAULT_MAX_PIXELS     25000000

#define CLOOB_TEXT_OF(x) #x
#define CLOOB_TEXT(x)    CLOOB_TEXT_OF(x)

/* The member that a row of each type declares. */
#define CLOOB_MEMBER_FLAG(field)      bool field
#define CLOOB_MEMBER_INT(field)       int64_t field
#define CLOOB_MEMBER_NUMBER(field)    double field
#define CLOOB_MEMBER_AUTO(field)      double field
#define CLOOB_MEMBER_AUTO_INT(field)  int64_t field
#define CLOOB_MEMBER_NUMBERS_3(field) double field[3]
#define CLOOB_MEMBER_NUMBERS_4(field) double field[4]
#define CLOOB_MEMBER_CHAR(field)      char field
#define CLOOB_MEMBER_STRING(field)    const char *field
#define CLOOB_MEMBER_LIST(field)                                                                                       \
    const char *const *field;                                                                                          \
    int64_t field##_count

/* A row whose option has the name of the field. */
#define CLOOB_OPTION(type, field, ...) CLOOB_OPTION_NAMED(type, field, #field, NULL, __VA_ARGS__)

#endif
