package faults

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
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

// Few lists the first items, at most that many, with a separator, and counts the others.
func Few(items []string, most int, separator string) string {
	if others := len(items) - most; others > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(items[:most], separator), others)
	}
	return strings.Join(items, separator)
}

// Printable returns text for a terminal or a log: characters that are not printable, such as those that
// move a cursor or change the direction of writing, appear as Go would write them in quotes, and those that JSON may have in
// strings as JSON writes them, so that it remains JSON. The characters in keep stay, and spaces of all kinds: errors of protobuf have one that does not break, in some builds.
func Printable(text, keep string) string {
	bad := func(c rune) bool {
		return !unicode.IsPrint(c) && !unicode.Is(unicode.Zs, c) && !strings.ContainsRune(keep, c)
	}
	if !strings.ContainsFunc(text, bad) {
		return strings.ToValidUTF8(text, "\uFFFD")
	}
	var b strings.Builder
	for _, c := range text {
		switch {
		case !bad(c):
			b.WriteRune(c)
		case c < ' ':
			quoted := strconv.QuoteRune(c)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			for _, unit := range utf16.AppendRune(nil, c) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		}
	}
	return b.String()
}

// Count returns a number with its noun, which agrees with it: "1 policy", "2,000 policies".
func Count(n int, noun string) string {
	if n != 1 {
		if stem, isY := strings.CutSuffix(noun, "y"); isY {
			noun = stem + "ie"
		}
		noun += "s"
	}
	return Number(n) + " " + noun
}

// Number writes a number with a comma between thousands.
func Number(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0 && n > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
