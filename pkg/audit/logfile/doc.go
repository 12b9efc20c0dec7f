// Package logfile reads the audit events in the log file of an API server (--audit-log-path), as lines of JSON.
//
// The API server rotates its log with lumberjack: it renames audit.log to audit-2026-11-27T06-18-52.123.log, and then
// creates a new audit.log. It may then compress the backup (.gz), and removes old backups. A [Reader] reads the backups
// in the order of their times, and then the log itself, and goes on with what follows after each rotation.
//
// # Where a reader is
//
// Names and inodes do not identify a file over a restart: a file that was read in part may have been renamed and
// compressed since, and inodes are used again. Lines of an audit log are unique, so a position contains checksums of
// the beginning of the file, and of what precedes the position. If no file matches them, the file was removed or
// truncated, and the reader reports a loss. While a file is open, the reader compares it with what has its name.
//
// The reader polls the file instead of using inotify: a poll costs two calls of the operating system, works with each
// file system, and cannot miss anything.
package logfile
