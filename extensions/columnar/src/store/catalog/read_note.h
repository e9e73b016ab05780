/*
 * read_note.h
 *		Notes what queries read of row groups, for whoever measures heat (extensions/common/read_hook.h).
 *
 * Scans and fetches by index count; VACUUM, compaction, verification and the planner do not.
 */
#ifndef COLUMNAR_READ_NOTE_H
#define COLUMNAR_READ_NOTE_H

#include "compat.h"

extern void read_note_initialize(void);

/* Nothing is noted for 0 bytes, or when nobody wants to know. */
extern void read_note(Oid relation, uint64 group_id, uint64 bytes);

#endif
