package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// visible is a writer for all that the command prints: nothing that was in a file or an answer gets control of the
// terminal, whichever command prints it. Characters that are not printable appear as JSON has them in
// strings (\u001b), so that JSON remains JSON. Line breaks and tabs stay: to keep a text from adding lines is up to
// who prints it as one line.
//
// It is safe for concurrent use.
type visible struct {
	mu sync.Mutex
	to io.Writer
	// rest is the begin of a character whose end was not written yet.
	rest []byte
}

// Write writes all complete characters.
func (v *visible) Write(data []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := data
	if len(v.rest) > 0 {
		all = append(v.rest, data...)
	}
	end := len(all)
	for back := 1; back < utf8.UTFMax && back <= len(all); back++ {
		if begin := len(all) - back; utf8.RuneStart(all[begin]) {
			if !utf8.FullRune(all[begin:]) {
				end = begin
			}
			break
		}
	}
	v.rest = append([]byte(nil), all[end:]...)
	if _, err := io.WriteString(v.to, escaped(string(all[:end]))); err != nil {
		return 0, err
	}
	return len(data), nil
}

// Close writes what is left of a character that has no end.
func (v *visible) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.rest) == 0 {
		return nil
	}
	v.rest = nil
	_, err := io.WriteString(v.to, string(utf8.RuneError))
	return err
}

// escaped returns text without control of a terminal.
func escaped(text string) string {
	if !strings.ContainsFunc(text, invisible) {
		return strings.ToValidUTF8(text, string(utf8.RuneError))
	}
	var b strings.Builder
	for _, c := range text {
		if !invisible(c) {
			b.WriteRune(c)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, c) {
			fmt.Fprintf(&b, "\\u%04x", unit)
		}
	}
	return b.String()
}

// invisible reports whether a character is not printable. Spaces are, of whatever width.
func invisible(c rune) bool {
	return !unicode.IsPrint(c) && c != '\n' && c != '\t' && !unicode.Is(unicode.Zs, c)
}
