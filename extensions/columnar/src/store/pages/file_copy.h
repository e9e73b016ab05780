/*
 * file_copy.h
 *		The main fork of a relation in another file, while others go on changing it.
 *
 * A page is copied again when its LSN has moved, so what is left for the moment under lock is
 * what was changed since the round before.  Hint bits may be missing in the copy: they are hints.
 * Free space and visibility maps are not copied: VACUUM makes them again, and until then no page of
 * the copy is taken for all-visible.
 *
 * For permanent relations of which all changes are logged, and which nobody truncates meanwhile.
 */
#ifndef COLUMNAR_FILE_COPY_H
#define COLUMNAR_FILE_COPY_H

#include "compat.h"

#include "storage/bufpage.h"
#include "utils/rel.h"

/*
 * A file without a name in the catalogs, as a Relation that the buffer manager understands.  It goes
 * when the transaction ends without a commit; file_discard() is needed in any case, errors included.
 */
extern Relation file_create(Oid tablespace, Oid number);
extern void file_discard(Relation file);

/*
 * Makes the file that of the relation, under AccessExclusiveLock; the one it had goes at the commit.
 * Who looks at the relation afterwards increments the command counter first.
 */
extern void file_install(Relation relation, Relation file);

typedef struct FileCopy
{
	Relation source;
	Relation file;
	XLogRecPtr *copied; /* LSN of each page as it was copied; invalid: to be copied again */
	BlockNumber ncopied;
	BlockNumber capacity;
} FileCopy;

extern void file_copy_begin(FileCopy *copy, Relation source, Relation file);

/*
 * Changes a page on its way; false if it must come again even if nobody changes it.  Nothing is locked.
 */
typedef bool (*FileCopyPatch)(void *argument, BlockNumber block, Page page);

/* Copies what is new; returns the pages written.  `patch` may be NULL. */
extern uint32 file_copy_catch_up(FileCopy *copy, FileCopyPatch patch, void *argument);

#endif
