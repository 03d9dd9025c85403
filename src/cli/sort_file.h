/* An image goes into the folder of its label. */
#ifndef CLI_SORT_FILE_H
#define CLI_SORT_FILE_H

#include <stdbool.h>

/* Puts a symbolic link to the file (or a copy) into DIR/LABEL, which is made when absent. Slashes in a label become
 * dashes. A name that is taken by another file gets a number; the same link again is left alone. False: one line on
 * stderr says why. */
bool sort_file(const char *path, const char *dir, const char *label, bool copy);

#endif
