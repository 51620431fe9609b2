// Package report prints how a demo goes: as lines for a pipe or a file, as a
// table that is redrawn in place for a terminal, as JSON for machines.
//
// It is told by package scenario and by package demo, and writes to an
// io.Writer. It judges nothing.
package report
