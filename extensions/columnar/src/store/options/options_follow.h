/*
 * options_follow.h
 *		Keeps labels right while their tables change: columns renamed or dropped, tables
 *		converted to another access method.
 */
#ifndef COLUMNAR_OPTIONS_FOLLOW_H
#define COLUMNAR_OPTIONS_FOLLOW_H

/* Installs the hook; called by options_initialize(). */
extern void options_follow_initialize(void);

#endif
