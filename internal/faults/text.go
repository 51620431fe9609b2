package faults

import (
	"strconv"
	"unicode/utf8"
)

// MaxQuoted bounds what Quote shows, in bytes. The names of messages fit.
const MaxQuoted = 200

// Quote puts text of a document or message into quotes, shortened to MaxQuoted.
func Quote(s string) string { return strconv.Quote(Shorten(s, MaxQuoted)) }

// Shorten cuts text to at most limit bytes, between two characters, and puts "…" behind
// what was cut.
func Shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}
