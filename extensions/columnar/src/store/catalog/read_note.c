/*
 * read_note.c
 *		What queries read: see read_note.h.
 */
#include "store/catalog/read_note.h"

#include "fmgr.h"

#include "read_hook.h"

/* Whoever is loaded later may set it. */
static void **hook = NULL;

void
read_note_initialize(void)
{
	hook = find_rendezvous_variable(READ_HOOK_VARIABLE);
}

void
read_note(Oid relation, uint64 group_id, uint64 bytes)
{
	if (*hook != NULL && bytes > 0)
		((ReadHook) *hook)(relation, group_id, bytes);
}
