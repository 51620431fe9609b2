// Package diskcache keeps the resources that a program last used in a file, for a start without a
// control plane. Which resources these are, and when the file is written, the client decides. The package
// knows no types of resources.
//
// # Several processes
//
// All processes of a program write one file, always as a whole, and the last one counts. A process without
// a connection writes at most what it had heard before. So what a process starts
// with is the view that one process had, never a mixture of several:
//
//	9:00   processes 1 and 2 write the file; both have clusters a and b
//	10:00  process 2 loses its connection, and ends at 11:00
//	10:30  process 1 is told that b was deleted, and writes the file: a
//	11:30  process 3 reads the file
//
// # Format
//
// A line of text, Magic; then a Header and Records of proto/dynxds/resource_cache/v1, each behind its length as a varint; then the
// SHA-256 of all that.
package diskcache
