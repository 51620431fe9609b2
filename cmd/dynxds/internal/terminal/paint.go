package terminal

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// colour is how words are shown: as a parameter of the escape sequence SGR (ECMA-48).
type colour struct {
	sgr   int
	words *regexp.Regexp
}

const bold, red, green, yellow, cyan = 1, 31, 32, 33, 36

// palette has the words of states, differences and explanations. The first pattern that matches at a place counts. It
// knows words, not who says them: a peer's text may be coloured, and cannot choose a colour or anything else.
var palette = []colour{
	{red, regexp.MustCompile(`(?m)^-.*$|^dynxds: .*$`)},
	{green, regexp.MustCompile(`(?m)^\+.*$`)},
	{yellow, regexp.MustCompile(`(?m)^~.*$`)},
	{red, regexp.MustCompile(`\b(?:NACKED|NACKed|TRANSIENT_FAILURE|UNHEALTHY|UNAVAILABLE|DOES_NOT_EXIST|RECEIVED_ERROR|NOT_SERVING|NOT OBSERVED|NOT IN FORCE)\b|\b[Ff]ailing\b|\bejected\b|\bnot connected\b|\b(?:fails|rejected) `)},
	{yellow, regexp.MustCompile(`\b(?:CONNECTING|IDLE|DRAINING|TIMEOUT|REQUESTED)\b|\b[Dd]egraded\b|\bconnection state unknown\b|\bbehind\b|\bwarning:`)},
	{green, regexp.MustCompile(`\b(?:ACKED|ACKed|READY|HEALTHY|SERVING)\b|\b[Ww]ell\b|\btaken by\b|\bin use\b|\bObserved:`)},
	{bold, regexp.MustCompile(`(?m)^outcome .*$|^client "[^"]*".*$|^Step \d.*$|^[A-Z]+(?:  +[A-Z]+)+$`)},
	{cyan, regexp.MustCompile(`\[[^\[\]\s]+:\d+\]`)},
}

// paint adds colours to text that has no escape sequences.
func (v *Writer) paint(text string) string {
	if len(v.colours) == 0 || text == "" {
		return text
	}
	sgr := make([]int, len(text)) // of each byte
	for _, c := range v.colours {
		for _, at := range c.words.FindAllStringIndex(text, -1) {
			for i := at[0]; i < at[1]; i++ {
				if sgr[i] == 0 {
					sgr[i] = c.sgr
				}
			}
		}
	}
	var b strings.Builder
	for begin := 0; begin < len(text); {
		end := begin
		for end < len(text) && sgr[end] == sgr[begin] {
			end++
		}
		if sgr[begin] == 0 {
			b.WriteString(text[begin:end])
		} else {
			fmt.Fprintf(&b, "\x1b[%dm%s\x1b[0m", sgr[begin], text[begin:end])
		}
		begin = end
	}
	return b.String()
}

// size is the columns and lines of a terminal.
type size struct{ width, height int }

// Redraws reports whether Redraw replaces what it wrote before.
func (v *Writer) Redraws() bool { return v.window != nil }

// Redraw writes lines in the place of those of the last Redraw, unless something else was written since, or the window has
// another size: nobody knows how many lines the text takes now. It needs Redraws. What does not fit the terminal is cut.
func (v *Writer) Redraw(text string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.window()
	if now != v.within {
		v.drawn, v.within = 0, now
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if most := max(1, now.height-1); len(lines) > most {
		lines = append(lines[:most-1:most-1], fmt.Sprintf("… %d more lines", len(lines)-most+1))
	}
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.drawn) // up
	}
	b.WriteString("\x1b[J") // erase what is below
	for _, line := range lines {
		b.WriteString(v.paint(cut(escaped(strings.ReplaceAll(line, "\t", " ")), now.width)))
		b.WriteByte('\n')
	}
	v.drawn = len(lines)
	_, err := io.WriteString(v.to, b.String())
	return err
}

// cut returns what of a line fits into some columns.
func cut(line string, columns int) string {
	used, fits := 0, 0 // fits: the bytes that leave a column for "…"
	for i, c := range line {
		if used += columnsOf(c); used > columns {
			return line[:fits] + "…"
		}
		if used < columns {
			fits = i + utf8.RuneLen(c)
		}
	}
	return line
}

// columnsOf returns how many columns a terminal gives a character: two to those of East Asia and to emoji, none to accents of the
// character before.
func columnsOf(c rune) int {
	switch {
	case unicode.In(c, unicode.Mn, unicode.Me):
		return 0
	case width.LookupRune(c).Kind() == width.EastAsianWide, width.LookupRune(c).Kind() == width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}
